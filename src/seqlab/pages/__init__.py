"""How a result looks: self-contained pages and pictures, from plain values."""
