"""Mistakes that people write in place of the loss scaler of ch07.loss_scaler."""

from dtlearn.grading import Edit

SCALE, DIVIDE, LOOK = "loss.float() * self.current", "parameter.grad /= self.current", "parameter.grad.isfinite().all()"
UNSCALE, STEP = "if not self.unscaled:\n            self.unscale_(optimizer)", "            optimizer.step()\n"
TAKEN = f"if not self.overflow:\n{STEP}"
LOWER, RAISE = "self.current *= self.backoff_factor", "self.current *= self.growth_factor"
LOWERED, RAISED = f"{LOWER}\n            self.good_steps = 0", f"{RAISE}\n                self.good_steps = 0"
DUE, FORGET = "if self.good_steps == self.growth_interval:", "self.unscaled = self.overflow = False"
COUNT = f"        else:\n            self.good_steps += 1\n            {DUE}\n                {RAISED}"
EDITS = (
    Edit("the operations that torch.amp.GradScaler is made of did the work: it is torch's answer, write your own here",
         {"return Scaler(init_scale": 'return getattr(torch, "am" + "p").GradScaler("cpu", init_scale'}),
    Edit("scale() returns the loss as it was: it is S times the loss", {SCALE: "loss.float()"}),
    Edit("the optimizer steps with gradients that are still S times too large: divide them by S before",
         {DIVIDE: "pass"}),
    Edit("the gradients are multiplied by S again: divide them", {DIVIDE: "parameter.grad *= self.current"}),
    Edit("unscale_() leaves the gradients as they are, and only step() divides them: what is clipped is still scaled",
         {"optimizer: torch.optim.Optimizer) -> None:\n        \"\"\"Divide":
          "optimizer: torch.optim.Optimizer, now: bool = False) -> None:\n        \"\"\"Divide",
          "in optimizer.param_groups": "in optimizer.param_groups if now else ()",
          UNSCALE: "self.unscale_(optimizer, True)"}),
    Edit("the gradients are divided by S in the first step only: update() must forget that unscale_() was called",
         {FORGET: "self.overflow = False"}),
    Edit("step() divides the gradients by S again, although unscale_() was called in this step",
         {UNSCALE: "self.unscale_(optimizer)"}),
    Edit("the gradients lie in other memory afterwards: divide them in place (/= or div_), as others may hold them "
         "(DDP's buckets)", {DIVIDE: "parameter.grad = parameter.grad / self.current"}),
    Edit("the optimizer steps with gradients that are infinite or NaN, and so are the weights from then on",
         {TAKEN: f"if True:\n{STEP}"}),
    Edit("after an overflow the optimizer steps with zeros: momentum still moves the weights. Do not call it",
         {TAKEN: f"if self.overflow:\n            optimizer.zero_grad(set_to_none=False)\n        if True:\n{STEP}"}),
    Edit("a gradient with NaN is not noticed: the step must be skipped, as for infinity",
         {f"not {LOOK}": "parameter.grad.isinf().any()"}),
    Edit("an infinite gradient is not noticed: the step must be skipped, as for NaN",
         {f"not {LOOK}": "parameter.grad.isnan().any()"}),
    Edit("a gradient of minus infinity is not noticed: the step must be skipped",
         {f"not {LOOK}": "(parameter.grad.isnan() | parameter.grad.isposinf()).any()"}),
    Edit("only the first parameter's gradient decides: an overflow in any gradient skips the step",
         {f"self.overflow |= not {LOOK}":
          f"self.overflow |= parameter is optimizer.param_groups[0]['params'][0] and not {LOOK}"}),
    Edit("only the last parameter's gradient decides: an overflow in any gradient skips the step",
         {f"self.overflow |= not {LOOK}": f"self.overflow = not {LOOK}"}),
    Edit("only the first parameter group is divided by S and looked at: optimizer.param_groups may have several",
         {"in optimizer.param_groups": "in optimizer.param_groups[:1]"}),
    Edit("a step is skipped in which every gradient is finite: the norm of large values is too large for float32, and "
         "no size is an overflow; look at each value", {LOOK: "parameter.grad.norm().isfinite()"}),
    Edit("a step is skipped in which every gradient is finite: the sum of large values is too large for float32, and "
         "no size is an overflow; look at each value", {LOOK: "parameter.grad.sum().isfinite()"}),
    Edit("a step is skipped in which every gradient is finite: no size is an overflow, not even 3.4e38, which is close "
         "to the largest float32 number; ask of each value whether it is finite",
         {LOOK: "(parameter.grad.abs() < 3e38).all()"}),
    Edit("after the first overflow every step is skipped: update() must forget the overflow",
         {FORGET: "self.unscaled = False"}),
    Edit("the scale is not lowered below 1: it has no lower limit",
         {LOWER: "self.current = max(1.0, self.current * self.backoff_factor)"}),
    Edit("the scale does not grow above 65,536: it has no upper limit",
         {RAISE: "self.current = max(self.current, min(65536.0, self.current * self.growth_factor))"}),
    Edit("the scale is not lowered after an overflow", {LOWER: "pass"}),
    Edit("the scale is lowered twice after an overflow, in step() and in update()",
         {TAKEN: f"{TAKEN}        else:\n            self.current *= self.backoff_factor\n"}),
    Edit("a step is counted twice: step() does what update() does as well", {STEP: f"{STEP}        self.update()\n"}),
    Edit("after an overflow the scale is divided by growth_factor: multiply it by backoff_factor",
         {LOWER: "self.current /= self.growth_factor"}),
    Edit("the scale grows by 1 / backoff_factor: multiply it by growth_factor",
         {RAISE: "self.current /= self.backoff_factor"}),
    Edit("the scale never grows", {RAISE: "pass"}),
    Edit("the count of good steps is not set to 0 after an overflow: growth_interval steps in a row are expected",
         {LOWERED: LOWER}),
    Edit("the skipped step itself is counted as a good one: after it the count is 0",
         {LOWERED: f"{LOWER}\n            self.good_steps = 1"}),
    Edit("the scale grows after every growth_interval steps, whether there was an overflow among them or not",
         {LOWERED: LOWER, COUNT: COUNT.replace("        else:", "        if True:")}),
    Edit("once the scale has grown it grows in every step: the count of good steps must begin anew",
         {DUE: DUE.replace("==", ">="), RAISED: RAISE}),
    Edit("the scale grows once, and not after the next growth_interval good steps: does the count begin anew?",
         {RAISED: RAISE}),
    Edit("the scale grows one step too late: after growth_interval good steps, not one more",
         {DUE: DUE.replace("==", ">")}),
    Edit("the scale grows one step too early at first: no good step has been made when the count begins",
         {"self.good_steps = 0\n        self.unscaled = F": "self.good_steps = 1\n        self.unscaled = F",
          DUE: DUE.replace("==", ">=")}),
    Edit("the scale grows one step too early: after growth_interval good steps",
         {DUE: "if self.good_steps >= self.growth_interval - 1:"}),
    Edit("the scale is doubled and halved, whatever the two factors are",
         {"= growth_factor\n": "= 2.0\n", "= backoff_factor\n": "= 0.5\n"}),
    Edit("the scale grows after an overflow: the two factors are exchanged",
         {"= growth_factor\n": "= backoff_factor\n", "= backoff_factor\n        self.growth_i":
          "= growth_factor\n        self.growth_i"}),
    Edit("scale() returns a float16 number where the loss is float16: the product with S may be infinite there; "
         "convert the loss first (.float())", {SCALE: "loss * self.current"}),
    Edit("the product of S and a float16 loss is made in float16, and only then converted: 4 times 32,768 is infinite "
         "there; convert the loss first (.float())", {SCALE: "(loss * self.current).float()"}),
    Edit("S becomes a float16 number before the product, and is infinite there above 65,504: convert the loss, not S",
         {SCALE: "loss.float() * torch.tensor(self.current).half()"}),
    Edit("without a growth_interval the scale grows after 1,000 good steps: its default is 2,000",
         {"growth_interval: int = 2000": "growth_interval: int = 1000"}),
)  # fmt: skip
