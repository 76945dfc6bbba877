"""Operations that make arrays and rearrange their elements."""
