"""Each data set in every layout in which it is met; the files are of our own making."""

import json
from hashlib import sha256

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from robust_eval.dataset.published import Published
from robust_eval.question import Question

PASSAGE = "The mill on the Aar burnt down in 1832."
GROUP = sha256(PASSAGE.encode()).hexdigest()[:16]


@pytest.fixture
def load(tmp_path):
    def loaded(layout, name, content, **more):
        file = tmp_path / name
        if file.suffix == ".parquet":
            pq.write_table(pa.Table.from_pylist(content), file)
        elif isinstance(content, bytes):
            file.write_bytes(content)
        else:
            lines = file.suffix == ".jsonl"
            file.write_text("\n".join(map(json.dumps, content)) if lines else json.dumps(content), encoding="utf-8")
        return Published(name=layout, layout=layout, path=str(file), max_invalid_fraction=1, **more).load()

    return loaded


def in_every_export(load, layout, records, **more):
    """The questions of an export, which are the same in Parquet and JSON Lines."""
    found = [load(layout, f"export.{kind}", records, **more) for kind in ("parquet", "jsonl", "json")]
    assert found[1] == found[0] == found[2]
    assert found[1].unusable == found[0].unusable == found[2].unusable
    return found[0]


def spans(*texts):
    return [{"text": text, "answer_start": 3} for text in texts]


def test_squad(load):
    mill = Question("s1", "When did it burn?", ("1832", "in 1832"), context=PASSAGE, category="Mills", group=GROUP)
    again = Question("s2", "When did it burn?", ("1832",), context=PASSAGE, category="Mills", group=GROUP)
    qas = [
        {"id": "s1", "question": " When did it burn? ", "answers": spans("1832", "in 1832", "1832")},
        {"id": "s2", "question": "When did it burn?", "answers": spans("1832"), "is_impossible": False},
        {"id": "s3", "question": "Why?", "answers": [], "plausible_answers": spans("1832"), "is_impossible": True},
        {"id": "s1", "question": "Which mill?", "answers": spans("the mill")},
        {"id": "s4", "question": "Who?", "answers": spans(" ", "")},
        {"id": "s5", "question": None, "answers": spans("1832")},
        {"id": "s6", "question": "Which river?", "answers": spans("x" * 100_001)},
    ]
    unusable = {
        "duplicate id": 1,
        "no accepted answer": 1,
        "no question": 1,
        "text of more than 100,000 characters": 1,
        "unanswerable": 1,
    }
    document = {
        "version": "v2.0",
        "data": [{"title": "Mills", "paragraphs": [{"context": PASSAGE, "qas": qas}, 3]}, {"title": "Empty"}],
    }
    published = load("squad", "dev.json", document)
    assert published == [mill, again]
    assert published.unusable == unusable | {"no question": 3}  # neither a 3 nor an article without paragraphs asks
    exported = [
        {
            "id": entry["id"],
            "title": "Mills",
            "context": PASSAGE,
            "question": entry["question"],
            "answers": {
                "text": [span["text"] for span in entry["answers"]],
                "answer_start": [3 for _ in entry["answers"]],
            },
        }
        for entry in qas
    ]
    hub = in_every_export(load, "squad", exported)
    assert hub == published
    assert hub.unusable == unusable
    closed = load("squad", "dev.json", document, scenario="abstractive")
    assert closed == [
        Question("s1", "When did it burn?", ("1832", "in 1832"), category="Mills", group=GROUP),
        Question("s2", "When did it burn?", ("1832",), category="Mills", group=GROUP),
    ]


def test_trivia_qa(load):
    yard = Question("tc_1", "Which unit has three feet?", ("Yard", "The yard", "yd"))
    lost = Question("tc_2", "What does 'yd' mean?", ("it's a yard",))
    published = {
        "Data": [
            {
                "QuestionId": "tc_1",
                "Question": yard.text,
                "Answer": {"Value": "Yard", "Aliases": ["The yard", "yd", "Yard"], "NormalizedAliases": ["yard"]},
            },
            {"QuestionId": "tc_2", "Question": lost.text, "Answer": {"Value": "it's a yard", "Aliases": []}},
            {"QuestionId": "tc_3", "Question": "Who?", "Answer": {"Value": " ", "Aliases": []}},
        ],
        "Domain": "Web",
    }
    assert load("trivia_qa", "web.json", published) == [yard, lost]
    exported = [
        {
            "question": entry["Question"],
            "question_id": entry["QuestionId"],
            "answer": {"value": entry["Answer"]["Value"], "aliases": [*entry["Answer"]["Aliases"], "yd"][:3]},
        }
        for entry in published["Data"][:1]
    ]
    assert in_every_export(load, "trivia_qa", exported) == [yard]
    table = (
        "Which unit has three feet?\t['Yard', 'The yard', 'yd']\r\n"
        'What does \'yd\' mean?\t"[""it\'s a yard""]"\r\n'
        "Who?\t[' ', '']\r\n"
        "Who else?\tnobody\r\n"
    )
    dpr = load("trivia_qa", "dpr.tsv", table.encode())
    assert [(question.text, question.answers) for question in dpr] == [(q.text, q.answers) for q in (yard, lost)]
    assert dpr.unusable == {"no accepted answer": 2}


def test_hotpot_qa(load):
    bridge = Question(
        "h1",
        "Which river runs by the mill?",
        ("Aar",),
        context="Mill: It stands at the Aar. It burnt.\nAar: A river.",
        category="bridge",
    )
    record = {
        "question": bridge.text,
        "answer": "Aar",
        "type": "bridge",
        "level": "hard",
        "supporting_facts": {"title": ["Mill"], "sent_id": [0]},
        "context": {"title": ["Mill", "Aar"], "sentences": [["It stands at the Aar.", " It burnt."], ["A river."]]},
    }
    published = record | {
        "_id": "h1",
        "context": [["Mill", ["It stands at the Aar.", " It burnt."]], ["Aar", ["A river."]]],
    }
    assert load("hotpot_qa", "dev.json", [published]) == [bridge]
    assert in_every_export(load, "hotpot_qa", [record | {"id": "h1"}]) == [bridge]
    kilt = [
        {
            "id": "h1",
            "input": bridge.text,
            "output": [
                {"answer": "Aar", "provenance": [{"title": "Mill"}]},
                {"answer": None, "provenance": [{"title": "Aar"}]},
                {"answer": "the Aar", "provenance": []},
            ],
        },
        {"id": "h2", "input": "Who?", "output": [{"answer": None, "provenance": [{"title": "Mill"}]}]},
    ]
    found = in_every_export(load, "hotpot_qa", kilt)
    assert found == [Question("h1", bridge.text, ("Aar", "the Aar"))]
    assert found.unusable == {"no accepted answer": 1}


def test_nq_open(load):
    records = [{"question": "where is the mill", "answer": ["Bern", "in Bern"]}, {"question": "who", "answer": []}]
    found = in_every_export(load, "nq_open", records)
    assert [(question.text, question.answers) for question in found] == [("where is the mill", ("Bern", "in Bern"))]
    assert found.unusable == {"no accepted answer": 1}


def test_pop_qa(load):
    author = Question("7", "Who wrote Mill?", ("Ann Ox", "A. Ox"), category="author", group="http://w/Q1")
    record = {
        "id": 7,
        "subj": "Mill",
        "prop": "author",
        "obj": "Ann Ox",
        "s_uri": "http://w/Q1",
        "question": author.text,
        "possible_answers": '["Ann Ox", "A. Ox"]',
    }
    assert in_every_export(load, "pop_qa", [record]) == [author]
    cells = ['"' + str(value).replace('"', '""') + '"' for value in record.values()]
    table = "\t".join(record) + "\n" + "\t".join(cells) + "\n"
    assert load("pop_qa", "popQA.tsv", table.encode()) == [author]


def test_wiki_qa(load):
    rows = [
        ("Q1", "how old is the mill", "D1", "Mill", "D1-0", '"Mill" is a novel.', 0),
        ("Q1", "how old is the mill", "D1", "Mill", "D1-1", "It is 90 years old.", 1),
        ("Q1", "how old is the mill", "D1", "Mill", "D1-2", 'It dates from "1832".', 1),
        ("Q2", "who burnt it", "D1", "Mill", "D1-1", "It is 90 years old.", 0),
        ("Q3", "why", "D2", "Fire", "D2-0", "Fire burns.", "?"),
    ]
    mill = Question(
        "Q1",
        "how old is the mill",
        ("It is 90 years old.", 'It dates from "1832".'),
        category="Mill",
        group="Mill",
        incorrect=('"Mill" is a novel.',),
    )
    unusable = {"malformed record": 1, "unanswerable": 1}
    header = "QuestionID\tQuestion\tDocumentID\tDocumentTitle\tSentenceID\tSentence\tLabel\n"
    published = load(
        "wiki_qa", "test.tsv", (header + "".join("\t".join(map(str, row)) + "\n" for row in rows)).encode()
    )
    assert published == [mill]
    assert published.unusable == unusable
    names = ("question_id", "question", "document_title", "answer", "label")
    exported = [dict(zip(names, (row[0], row[1], row[3], row[5], row[6]), strict=True)) for row in rows[:4]]
    assert in_every_export(load, "wiki_qa", exported) == [mill]


def test_truthful_qa_in_words(load):
    header = "Type,Category,Question,Best Answer,Correct Answers,Incorrect Answers,Source\n"
    table = (
        "\ufeff"
        + header
        + "Adversarial,Myths,Do mills fly?,No,No; They stand; No mill flies;,Yes; They do,http://x\r\n"
        'Adversarial,Myths,"Do mills, when old, fly?",No,"No; No, never",,http://x\r\n'
    )
    myth = ("Do mills fly?", ("No", "They stand", "No mill flies"), ("Yes", "They do"), "Myths")
    published = load("truthful_qa_answers", "TruthfulQA.csv", table.encode())
    assert [(q.text, q.answers, q.incorrect, q.category) for q in published] == [myth]
    assert published.unusable == {"no wrong reference": 1}
    record = {
        "type": "Adversarial",
        "category": "Myths",
        "question": "Do mills fly?",
        "best_answer": "No",
        "correct_answers": ["No", "They stand", "No mill flies"],
        "incorrect_answers": ["Yes", "They do"],
    }
    assert in_every_export(load, "truthful_qa_answers", [record]) == published  # with the same id
