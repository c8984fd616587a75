"""The transaction that a SQL script is in, with the savepoints of its statements."""

from pyspark.sql import DataFrame, SparkSession

from headgate.client.open_transaction import Transaction
from headgate.client.own_writes import Savepoint
from headgate.errors import NotFoundError
from headgate.names import did_you_mean, fold
from headgate.sql.statements import SavepointAction

_COLUMNS = (
    "transaction string, state string, isolation string, begun long, statements int, "
    "sequence long, table string, version long"
)


class OpenTransaction:
    """A transaction begun by BEGIN, until COMMIT or ROLLBACK."""

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction
        self._savepoints: dict[str, Savepoint] = {}  # by their names without case, oldest first

    @property
    def is_ended(self) -> bool:
        return self._transaction.state.is_ended

    def commit(self) -> None:
        self._transaction.commit()

    def rollback(self) -> None:
        self._transaction.rollback()

    def on_savepoint(self, action: SavepointAction, name: str) -> None:
        """Set a savepoint, or return to one, or forget it."""
        key = fold(name)
        if action is SavepointAction.SET:
            self._savepoints.pop(key, None)
            self._savepoints[key] = self._transaction.mark()
            return
        if key not in self._savepoints:
            raise NotFoundError(
                f"There is no savepoint {name}.{did_you_mean(name, self._savepoints)}",
                remedy="Set one with SAVEPOINT.",
            )
        if action is SavepointAction.ROLL_BACK_TO:
            self._transaction.roll_back_to(self._savepoints[key])
        known = list(self._savepoints)
        # Later savepoints end with the statements before them; one may be returned to repeatedly.
        kept = known.index(key) + (action is SavepointAction.ROLL_BACK_TO)
        self._savepoints = {name: self._savepoints[name] for name in known[:kept]}

    def described(self, spark: SparkSession) -> DataFrame:
        """Return a row for each table that it changed, or one if there is none."""
        of = self._transaction
        changed: list[tuple[str | None, int | None]] = [*of.versions.items()]
        rows = [
            (
                of.id,
                of.state.value,
                of.isolation.value,
                of.begun,
                of.num_statements,
                of.sequence,
                table,
                version,
            )
            for table, version in changed or [(None, None)]
        ]
        return spark.createDataFrame(rows, _COLUMNS)
