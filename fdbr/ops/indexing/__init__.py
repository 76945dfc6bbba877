"""Operations that read and write elements by keys, index arrays, segments and rows of tables."""
