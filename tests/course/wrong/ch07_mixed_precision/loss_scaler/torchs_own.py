# expect: DTL-RULE-NAME
# says: it is torch's answer

import torch


def loss_scaler(init_scale=65536.0, growth_factor=2.0, backoff_factor=0.5, growth_interval=2000):
    return torch.amp.GradScaler("cpu", init_scale, growth_factor, backoff_factor, growth_interval)
