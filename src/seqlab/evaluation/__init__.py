"""How good is it? Reads only: no weight and no random stream is touched."""
