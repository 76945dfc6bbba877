"""Operations that create arrays and rearrange their elements."""
