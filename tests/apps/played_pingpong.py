"""A fi_pingpong that plays a device, and the folder of one in sysfs."""

from pathlib import Path
from typing import Final

TABLE: Final = """\
bytes   #sent   #ack     total       time     MB/sec    usec/xfer   Mxfers/sec
64      100     =100     12k         0.02s      0.06    1123.55       0.00
256     100     =100     50k         0.00s     23.60      {us}       0.09
1k      100     =100     200k        0.00s     93.09      99.00       0.09
1m      100     =100     200m        0.01s   {rate}     494.05       0.00
"""
CODE: Final = """\
import socket
options = dict(zip(argv[::2], argv[1::2], strict=False)) if '-c' not in argv else dict(
    zip([a for a in argv if a != '-c'][::2], [a for a in argv if a != '-c'][1::2], strict=False))
assert (options['-p'], options['-e']) == ({provider!r}, 'rdm'), argv
device = options.get('-d', '')
if '-B' in options:  # the server
    one = socket.create_server(('127.0.0.1', int(options['-B'])))
    one.accept()
    time.sleep(30)
try:
    socket.create_connection(('127.0.0.1', int(options['-P'])))
except ConnectionRefusedError:
    sys.exit(111)
{code}
print({table!r}.format(us={us}, rate={rate}), end='')
"""


def pingpong(
    *, code: str = "", rate: str = "'2122.41'", us: str = "'10.85'", provider: str = "efa"
) -> str:
    """Its code: ``code`` runs in the client, which knows its ``device``."""
    return CODE.format(code=code, table=TABLE, rate=rate, us=us, provider=provider)


def add_efa(root: Path, *devices: str) -> None:
    for device in devices:
        folder = root / "sys/class/infiniband" / device / "device"
        folder.mkdir(parents=True)
        (folder / "vendor").write_text("0x1d0f\n")
