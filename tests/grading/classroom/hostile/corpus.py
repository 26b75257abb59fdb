"""All hostile hand-ins."""

from .for_nothing import CHEATS, READS
from .in_the_files import ARCHIVES, STRANGE_NAMES, TEXTS
from .in_the_run import FILES, ON_THE_MACHINE
from .in_the_sources import NESTED, NOTEBOOKS, SOURCES
from .in_the_values import VALUES
from .in_what_is_read import IN_LOGS, ON_THE_LINE
from .own_answer import OWN_ANSWER

HAND_INS = [*IN_LOGS, *ON_THE_LINE, *ON_THE_MACHINE, *FILES, *READS, *CHEATS, *TEXTS, *ARCHIVES, *STRANGE_NAMES]
HAND_INS += [*SOURCES, *NOTEBOOKS, *NESTED, *VALUES, *OWN_ANSWER]
# Without namespaces a program may kill, fill and delete what its user may: none of those that do run there, nor the
# last two of READS, which write.
SAFE_BELOW_LEVEL_2 = [*IN_LOGS[::3], *READS[:-2], *CHEATS, *TEXTS[::2], *ARCHIVES[::3], *STRANGE_NAMES[::3]]
SAFE_BELOW_LEVEL_2 += [*SOURCES[::6], *NOTEBOOKS[::4], *VALUES[::3], *OWN_ANSWER[::5]]
