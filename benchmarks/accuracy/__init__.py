"""How exact values and derivatives are: each elementwise operation beside mpmath."""
