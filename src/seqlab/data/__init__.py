"""How text becomes ids and batches."""
