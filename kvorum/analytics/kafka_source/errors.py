"""The errors of the source, each one sentence: the thing, the value and the way out.

Spark shows them behind a Python traceback, and the last line of that is the message.
"""

from __future__ import annotations


class KafkaSourceError(Exception):
    """The source cannot do what a query asks; the message is for the user of Spark."""


class OptionRefused(KafkaSourceError):
    """An option, a schema or a save mode that cannot be obeyed; nothing was read or written."""


class ReadFailed(KafkaSourceError):
    """The cluster did not answer, or a range of offsets could not be read to its end."""


class DataLoss(KafkaSourceError):
    """Records that the query should read are gone; the option failOnDataLoss makes it an error."""


class WriteFailed(KafkaSourceError):
    """A record was not acknowledged, so the task fails and Spark writes its rows again."""
