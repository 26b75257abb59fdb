"""FP8: `scaling`, one scale for a tensor; `block_scaled`, one for every 32 numbers; `linear`, a layer that trains.

All by emulation: numbers are stored in 8 bits and multiplied in float32. The errors are those of FP8, the speed is not.
"""
