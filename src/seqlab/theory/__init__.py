"""What must always hold: mathematical claims about sequence models, each checked by machine.

claims() gives them all; a claim's check(seed) gives the evidence. Claims of one's own go into a Ledger.
"""

from seqlab.theory.ledger import Claim as Claim
from seqlab.theory.ledger import Evidence as Evidence
from seqlab.theory.ledger import Ledger as Ledger
from seqlab.theory.ledger import claims as claims
