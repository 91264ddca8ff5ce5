"""Claims that a program checks: chosen, checked, shown, asked."""
