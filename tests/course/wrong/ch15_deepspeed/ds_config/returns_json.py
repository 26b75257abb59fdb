# expect: DTL-VALUE-TYPE
# says: should be a dict; it is a text

import json


def ds_config(*, micro_batch, global_batch, stage, clipping, lr, weight_decay, **others):
    """Returns the text of ds_config.json."""
    return json.dumps(
        {
            "train_batch_size": global_batch,
            "train_micro_batch_size_per_gpu": micro_batch,
            "gradient_clipping": clipping or 0.0,
            "zero_optimization": {"stage": stage},
            "optimizer": {"type": "AdamW", "params": {"lr": lr, "weight_decay": weight_decay, "torch_adam": True}},
        }
    )
