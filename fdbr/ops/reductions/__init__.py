"""Operations that combine the elements of an array along axes."""
