"""The ids of all claims by subject, so that a wrong one is refused before anything is computed."""

from __future__ import annotations

import difflib

_TABLE = {
    "recurrence": """
        rnn.bptt-product rnn.steep-activations rnn.weight-updates-negligible rnn.weights-grow-exponentially
        rnn.loss-saturation rnn.gating-helps rnn.reparam rnn.reparam-proof rnn.jacobian rnn.product-range
        rnn.vanish-sufficient rnn.explode-threshold rnn.explode-necessary
        init.xavier-he
        rnnattn.parallel rnnattn.all-others rnnattn.circular
    """,
    "lstm": """
        lstm.zero-input lstm.zero-input-summary lstm.forget-zero-flows lstm.forget-zero-paths lstm.forget-summary
        lstm.gates-nonnegative lstm.forget-never-negative lstm.gates-not-distribution lstm.dh-dC lstm.dC-dC
        lstm.dC-dW-immediate lstm.grad-Wg lstm.grad-Wg-two-term-cell lstm.grad-Wg-double-count
        lstm.forget-gate-mitigates lstm.maintains-magnitude
    """,
    "gru": """
        gru.update-gate-closed gru.closed-ignores-input gru.reset-overwrites gru.feedforward-limit
        gru.torch-equivalence gru.reset-placement
    """,
    "attention": """
        attn.matrix-form attn.score-functions attn.permutation attn.categorical attn.concentrates
        attn.concentrates-similarity attn.copy attn.average-two attn.small-noise attn.magnitude-noise
        attn.magnitude-balanced attn.categorical-closed attn.concentrates-copies attn.average-two-limit
        attn.small-noise-relative attn.key-range attn.alpha-two-term
        mha.parallel-advantage mha.code-layout mha.receptive-field
        proj.AAt proj.need-vb proj.At
        mha2.queries mha2.robust mha2.unscaled-queries mha2.independent mha2.c1-fluctuates mha2.variance-reduction
    """,
    "scaling": """
        dot.mean dot.second-moment dot.variance dot.variance-zero-mean dot.scale-linear-mean dot.scale-variance
        dot.unscaled-variance-linear dot.unscaled-skewed-softmax dot.unscaled-gradient-explosion
        sdp.mean sdp.variance
        softmax.one-hot-limit softmax.jacobian softmax.frobenius-expansion softmax.frobenius-bound
        softmax.jacobian-vanishes softmax.derivative-cases
    """,
    "masks": """
        mask.causal-diagonal mask.encoder-only-padding mask.decoder-causal-suffices mask.encdec
        encdec.encoder-independent
    """,
    "cost": """
        mha.cost mha.bottleneck-short mha.bottleneck-long
        cost.encoder-self cost.cross cost.decoder-self cost.translate-extra
        wordlm.attention-cost
        cost-attention.projection cost-attention.scores-space cost-attention.total-time cost-attention.total-space
        cost-attention.mha-time cost-attention.mha-space cost-attention.bottleneck
    """,
    "normalisation": """
        bn.prevents-extreme bn.dependence
        ln.dependence ln.elementwise ln.norm ln.z-properties
    """,
    "losses": """
        sigmoid.reflection sigmoid.derivative
        ce.single-term-chain ce.gradient
        mlp.jacobian-layout mlp.grad-x
    """,
    "perplexity": """
        lm.dev-perplexity
        charlm.unknown-words charlm.memory charlm.subword
        ppl.base-invariance ppl.reported ppl.dev-against-passages ppl.units-not-comparable ppl.explain-gap
        ppl.preprocessing
    """,
    "averaging": """
        dan.word-order dan.mixed-sentiment
    """,
    "optimisation": """
        clip.threshold
        momentum.equivalence momentum.sign momentum.unroll momentum.bias momentum.bias-correction
        l2.sgd-equivalence l2.only-sgd
        adam.l2-line adam.denominator adam.l2-large-less adam.decoupled-uniform
        wd.equally-good
    """,
    "linear_attention": """
        separable.rows separable.cost separable.efficient separable.less-expressive separable.reason
        separable.causal
        linattn.DinvA linattn.A-entries linattn.reorder linattn.causal-prefix
        kernel.polarisation kernel.gaussian-mgf kernel.positive-features
        prf.scale prf.expectation-inside prf.accuracy-m prf.approximates-QK prf.softmax-temperature
    """,
    "positions": """
        pe.sinusoid pe.index-meaning
    """,
}
IDS_BY_SUBJECT = {subject: tuple(ids.split()) for subject, ids in _TABLE.items()}
IDS = tuple(id for ids in IDS_BY_SUBJECT.values() for id in ids)


def nearest_id(wrong: str, known: tuple[str, ...] = IDS) -> str:
    """The id that was probably meant, or nothing."""
    close = difflib.get_close_matches(wrong, known, n=1, cutoff=0.5)
    return close[0] if close else ""
