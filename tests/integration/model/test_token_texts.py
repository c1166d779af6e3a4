import random as standard_random

from token_search import equal_to, starting_with, with_word


def test_the_texts_of_a_byte_level_tokenizer_with_merges_are_those_that_it_decodes(embedded):
    texts = embedded.texts.vocabularies[True].texts
    size = embedded.model.get_output_embeddings().weight.shape[0]
    assert len(texts) == size == 49_152
    for token in range(size):
        written = embedded.tokenizer.decode([token], skip_special_tokens=True)
        assert texts.raw[token].decode("utf-8", "replace") == written


def test_tokens_of_a_real_vocabulary_are_found(embedded):
    texts = embedded.texts.vocabularies[True].texts
    random = standard_random.Random(0)
    for word in [*random.sample(texts.keys, 5), "paris", "a", "s", " the", "ï", "nowhere in there"]:
        assert sorted(texts.starting_with(word)) == starting_with(texts, word)
        assert sorted(texts.equal_to(word)) == equal_to(texts, word)
        if word.strip():
            assert sorted(set(texts.with_word(word.strip()))) == with_word(texts, word.strip())
