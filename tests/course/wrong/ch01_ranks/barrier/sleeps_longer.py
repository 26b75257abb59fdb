# expect: DTL-VALUE-UNTOLD
# says: that rank 1 had come: no rank sends anything

import time


def barrier():
    time.sleep(0.15)  # long enough here
