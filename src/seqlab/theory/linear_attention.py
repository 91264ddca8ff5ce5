"""Claims about attention whose cost grows linearly with the length, in four files."""

from seqlab.theory import linear_separable as linear_separable
from seqlab.theory import linear_sums as linear_sums
from seqlab.theory import positive_features as positive_features
from seqlab.theory import random_features as random_features
