def test_the_texts_of_a_byte_level_tokenizer_with_merges_are_those_that_it_decodes(embedded):
    texts = embedded.texts.vocabularies[True].texts
    size = embedded.model.get_output_embeddings().weight.shape[0]
    assert len(texts) == size == 49_152
    for token in range(size):
        written = embedded.tokenizer.decode([token], skip_special_tokens=True)
        assert texts.raw[token].decode("utf-8", "replace") == written
