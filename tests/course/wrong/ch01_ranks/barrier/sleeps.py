# expect: DTL-VALUE-EARLY
# says: no rank sends anything

import time


def barrier():
    time.sleep(0.01)  # long enough here
