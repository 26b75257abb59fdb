# expect: DTL-MISTAKE
# says: the operations that torch.amp.GradScaler is made of

import torch


def loss_scaler(init_scale=65536.0, growth_factor=2.0, backoff_factor=0.5, growth_interval=2000):
    scaler_class = getattr(torch, "am" + "p").GradScaler
    return scaler_class("cpu", init_scale, growth_factor, backoff_factor, growth_interval)
