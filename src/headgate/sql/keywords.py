"""Keywords by their role in a statement, and functions with special properties."""


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


SCHEMA = ("SCHEMA", "DATABASE", "NAMESPACE")  # all mean the same
SCHEMAS = tuple(f"{word}S" for word in SCHEMA)

# Verbs of statements that neither the catalog nor Spark can run.
UNSUPPORTED = _words("OPTIMIZE VACUUM RESTORE")

# After one of these a word is an operand, whatever else it could be.
AWAITING = _words(
    """
    AND OR NOT IN LIKE RLIKE ILIKE REGEXP BETWEEN IS DIV CASE WHEN THEN ELSE WHERE HAVING ON BY
    SELECT DISTINCT ALL FROM AS ESCAPE QUALIFY
    """
)

SET_OPERATORS = _words("UNION EXCEPT INTERSECT MINUS SETMINUS")

# Clauses that may follow FROM or another clause of a query block.
CLAUSES = _words(
    "WHERE GROUP HAVING ORDER CLUSTER DISTRIBUTE SORT WINDOW LIMIT OFFSET QUALIFY SELECT LATERAL"
)

# Those of them that may be names: unless BY follows, or unless anything follows.
BEFORE_BY = _words("GROUP ORDER CLUSTER DISTRIBUTE SORT")
BEFORE_MORE = _words("LIMIT OFFSET WINDOW QUALIFY")

# After a table these are not its alias, unless AS precedes them.
NOT_AN_ALIAS = (
    CLAUSES
    | SET_OPERATORS
    | _words(
        """
        ANTI CROSS FULL INNER JOIN LEFT NATURAL ON RIGHT SEMI USING PIVOT UNPIVOT TABLESAMPLE FROM
        SET WHEN INSERT FOR WITH AS
        """
    )
)

# Functions that may return another value at every call.
NONDETERMINISTIC = _words(
    """
    RAND RANDOM RANDN RANDSTR UNIFORM UUID SHUFFLE MONOTONICALLY_INCREASING_ID SPARK_PARTITION_ID
    INPUT_FILE_NAME INPUT_FILE_BLOCK_START INPUT_FILE_BLOCK_LENGTH REFLECT JAVA_METHOD TRY_REFLECT
    FIRST FIRST_VALUE LAST LAST_VALUE ANY_VALUE COLLECT_LIST COLLECT_SET ARRAY_AGG
    """
)

# A query without these returns the same rows each time, if its functions do. With them it may
# choose other rows, or add numbers in another order.
CHOOSING = _words(
    """
    GROUP DISTINCT LIMIT OFFSET TABLESAMPLE OVER QUALIFY WINDOW PIVOT UNPIVOT TRANSFORM MAP REDUCE
    INTERSECT EXCEPT MINUS SETMINUS RECURSIVE |>
    """
)
# Common functions that depend on one row only.
ROWWISE = _words(
    """
    CAST TRY_CAST COALESCE NVL NVL2 IFNULL NULLIF IF IIF GREATEST LEAST ABS ROUND BROUND FLOOR CEIL
    CEILING SIGN MOD PMOD POWER SQRT UPPER LOWER TRIM LTRIM RTRIM LENGTH SUBSTR SUBSTRING LEFT RIGHT
    CONCAT CONCAT_WS REPLACE LPAD RPAD SPLIT REGEXP_REPLACE REGEXP_EXTRACT STARTSWITH ENDSWITH
    CONTAINS TO_DATE TO_TIMESTAMP DATE_TRUNC TRUNC DATE_ADD DATE_SUB DATEDIFF YEAR MONTH DAY HOUR
    STRUCT NAMED_STRUCT ARRAY MAP ARRAY_CONTAINS ELEMENT_AT SIZE XXHASH64 HASH SHA2 MD5 ISNULL
    ISNOTNULL ISNAN DATE TIMESTAMP STRING BOOLEAN TINYINT SMALLINT INT BIGINT FLOAT DOUBLE DECIMAL
    """
)
# A parenthesis after one of these is not a function call.
CALLING_NOTHING = AWAITING | _words("EXISTS VALUES JOIN USING OVER INTO SET ANY SOME END")

# Functions of the current time that need no parentheses.
BARE_CLOCKS = _words("CURRENT_TIMESTAMP CURRENT_DATE LOCALTIMESTAMP")
