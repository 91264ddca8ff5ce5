"""Claims about what changes weights, in four files."""

from seqlab.theory import clipping as clipping
from seqlab.theory import momentum as momentum
from seqlab.theory import weight_decay as weight_decay
from seqlab.theory import weight_decay_compared as weight_decay_compared
