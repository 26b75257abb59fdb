"""HelloDeepSpeed: a small BERT, trained from scratch, by plain torch or by DeepSpeed. The script to take home.

    python -m dtlearn.libraries.hello_deepspeed                                        one process
    torchrun --nproc-per-node 2 -m dtlearn.libraries.hello_deepspeed --zero 2          two ranks
    deepspeed --num_gpus 2 --module dtlearn.libraries.hello_deepspeed --zero 3         the same, by DeepSpeed's launcher
    run_ranks(train, 2, HelloOptions(engine="plain"))                                  from a notebook or a test

Without DeepSpeed it trains with the plain engine, and says so. In this order: `masked_text`, what is learnt; `bert`,
the model; `plain` and `deepspeed_engine`, which differ in few lines; `loop`, all together; `options`, the command line;
`stored`, runs of both, with their date.

It stands for the example of the same name in microsoft/DeepSpeedExamples (training/HelloDeepSpeed, `train_bert_ds.py`),
and differs from it where that one hides something:

- Each rank reads its own part of the batch. There all ranks set one seed and none has a sampler, so all
  read the same samples, and N ranks learn what one would.
- `gradient_clipping` is stated. There it is not, so that since DeepSpeed 0.19.3 it is 1.0, and was 0 before.
- Nothing is downloaded: the text is the course's, a token is a character. There: WikiText-2, RoBERTa's tokenizer.
- No dropout, so that both engines compute the same losses.
"""

from .loop import TrainedBert, train
from .options import HelloOptions

__all__ = ["HelloOptions", "TrainedBert", "train"]
