"""Pure functions on arrays: intervals, tests, agreement, reliability, robustness, correction by labels."""

from robust_eval.stats.agreement import cohen_kappa as cohen_kappa
from robust_eval.stats.agreement import fleiss_kappa as fleiss_kappa
from robust_eval.stats.agreement import free_marginal_kappa as free_marginal_kappa
from robust_eval.stats.agreement import gibbs_m2 as gibbs_m2
from robust_eval.stats.agreement import normalized_certainty as normalized_certainty
from robust_eval.stats.agreement import remapped_kappa as remapped_kappa
from robust_eval.stats.correction import corrected_mean as corrected_mean
from robust_eval.stats.correction import corrected_rate as corrected_rate
from robust_eval.stats.entropy import answer_entropy as answer_entropy
from robust_eval.stats.frs import breaking_temperature as breaking_temperature
from robust_eval.stats.frs import factual_robustness_score as factual_robustness_score
from robust_eval.stats.frs import settled as settled
from robust_eval.stats.frs import top_entropy as top_entropy
from robust_eval.stats.interval import bootstrap as bootstrap
from robust_eval.stats.interval import mean_interval as mean_interval
from robust_eval.stats.interval import paired_share_interval as paired_share_interval
from robust_eval.stats.interval import share_interval as share_interval
from robust_eval.stats.reliability import cronbach_alpha as cronbach_alpha
from robust_eval.stats.reliability import robustness as robustness
from robust_eval.stats.significance import holm as holm
from robust_eval.stats.significance import mcnemar as mcnemar
from robust_eval.stats.significance import paired_difference as paired_difference
from robust_eval.stats.significance import paired_p_value as paired_p_value
from robust_eval.stats.significance import stratified_log_rank as stratified_log_rank
from robust_eval.stats.verdicts import confidence_sequence as confidence_sequence
from robust_eval.stats.verdicts import verdict as verdict
