"""The sizes of language models: what each kind takes where a person says nothing."""

from seqlab.core.settings.fields import Preset

# Found by experiment on 2 cores (docs/log.md): what each kind gets out of its time. In a minute the number of steps
# is what is scarce, so batches are small and nothing is dropped; with more time the text is read more often, so the
# layers are wider and dropout grows.
_RECURRENT: Preset = dict(depth=1, batch=32, context=32, weight_decay=0.1)
_LONG: Preset = dict(batch=16, context=64, weight_decay=0.3)
_ATTENTIVE: Preset = dict(depth=1, batch=32, context=32, weight_decay=0.1, score="scaled")
_ATTENTION: Preset = dict(
    **dict(batch=16, attention="softmax", positions="rotary", weight_decay=0.1),
    **dict(activation="gelu", gated=False, norm="layer", placement="pre"),
)
_BIGRAM: Preset = dict(vector_width=50, train_vectors=True, batch=64, context=16, learning_rate=3e-2, weight_decay=0.0)
PRESETS: dict[str, dict[str, Preset]] = {
    "bigram": {
        "small": dict(width=50) | _BIGRAM,
        "medium": dict(width=100) | _BIGRAM,
        "large": dict(width=200) | _BIGRAM,
        "huge": dict(width=400) | _BIGRAM,
    },
    "rnn": {
        "small": dict(width=256, learning_rate=2e-3, dropout=0.0) | _RECURRENT,
        "medium": dict(width=384, learning_rate=1.5e-3, dropout=0.1) | _RECURRENT,
        "large": dict(width=640, learning_rate=1e-3, dropout=0.3) | _RECURRENT,
        "huge": dict(width=896, learning_rate=7e-4, dropout=0.5) | _RECURRENT | _LONG,
    },
    "gru": {
        "small": dict(width=256, learning_rate=6e-3, dropout=0.0) | _RECURRENT,
        "medium": dict(width=320, learning_rate=5e-3, dropout=0.15) | _RECURRENT,
        "large": dict(width=384, learning_rate=4e-3, dropout=0.3) | _RECURRENT | _LONG,
        "huge": dict(width=512, learning_rate=3e-3, dropout=0.5) | _RECURRENT | _LONG,
    },
    "lstm": {
        "small": dict(width=256, learning_rate=6e-3, dropout=0.0) | _RECURRENT,
        "medium": dict(width=320, learning_rate=5e-3, dropout=0.15) | _RECURRENT,
        "large": dict(width=384, learning_rate=4e-3, dropout=0.3) | _RECURRENT | _LONG,
        "huge": dict(width=512, learning_rate=3e-3, dropout=0.5) | _RECURRENT | _LONG,
    },
    "attentive-rnn": {
        "small": dict(width=256, learning_rate=2e-3, dropout=0.0) | _ATTENTIVE,
        "medium": dict(width=384, learning_rate=1.5e-3, dropout=0.1) | _ATTENTIVE,
        "large": dict(width=512, learning_rate=1e-3, dropout=0.3) | _ATTENTIVE,
        "huge": dict(width=640, learning_rate=7e-4, dropout=0.5) | _ATTENTIVE,
    },
    "transformer": {
        "small": dict(width=128, depth=3, heads=4, context=64, learning_rate=4e-3, dropout=0.0) | _ATTENTION,
        "medium": dict(width=192, depth=4, heads=6, context=128, learning_rate=2e-3, dropout=0.1) | _ATTENTION,
        "large": dict(width=320, depth=6, heads=5, context=256, learning_rate=1e-3, dropout=0.2) | _ATTENTION,
        "huge": dict(width=384, depth=8, heads=6, context=256, learning_rate=7e-4, dropout=0.3) | _ATTENTION,
    },
}
# Models of one's own start from these.
OWN_MODEL_PRESETS: dict[str, Preset] = PRESETS["gru"]

# With a guide there is less to learn: smaller steps, and where there is time two layers (docs/log.md).
_LED_RECURRENT: dict[str, Preset] = {
    "small": dict(learning_rate=2e-3),
    "medium": dict(learning_rate=2e-3),
    "large": dict(learning_rate=2e-3, depth=2, dropout=0.4),
    "huge": dict(learning_rate=2e-3, width=640, depth=2, dropout=0.6),
}
LED_PRESETS: dict[str, dict[str, Preset]] = {"gru": _LED_RECURRENT, "lstm": _LED_RECURRENT}
COMMON_PRESET: Preset = dict(tied=False, carry=True)
