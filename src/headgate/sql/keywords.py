"""Words that mean something by where they stand, and functions to be wary of: knowledge as data."""

from __future__ import annotations


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Behind one of these a word is an operand, whatever else it could mean.
AWAITING = _words(
    """
    AND OR NOT IN LIKE RLIKE ILIKE REGEXP BETWEEN IS DIV CASE WHEN THEN ELSE WHERE HAVING ON BY
    SELECT DISTINCT ALL FROM AS ESCAPE QUALIFY
    """
)

SET_OPERATORS = _words("UNION EXCEPT INTERSECT MINUS SETMINUS")

# What may follow the FROM clause, or another clause, of a query block.
CLAUSES = _words(
    "WHERE GROUP HAVING ORDER CLUSTER DISTRIBUTE SORT WINDOW LIMIT OFFSET QUALIFY SELECT LATERAL"
)

# Of these, the ones that may be names: unless BY follows, unless there is more to come.
BEFORE_BY = _words("GROUP ORDER CLUSTER DISTRIBUTE SORT")
BEFORE_MORE = _words("LIMIT OFFSET WINDOW QUALIFY")

# Behind a table these are not its alias, unless AS says so.
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

# A call of one of these gives another answer the next time.
NONDETERMINISTIC = _words(
    """
    RAND RANDOM RANDN RANDSTR UNIFORM UUID SHUFFLE MONOTONICALLY_INCREASING_ID SPARK_PARTITION_ID
    INPUT_FILE_NAME INPUT_FILE_BLOCK_START INPUT_FILE_BLOCK_LENGTH REFLECT JAVA_METHOD TRY_REFLECT
    FIRST FIRST_VALUE LAST LAST_VALUE ANY_VALUE COLLECT_LIST COLLECT_SET ARRAY_AGG
    """
)

# A query without these gives the same rows each time, if its functions do. With them it may choose
# other rows, or add numbers up in another order.
CHOOSING = _words(
    """
    GROUP DISTINCT LIMIT OFFSET TABLESAMPLE OVER QUALIFY WINDOW PIVOT UNPIVOT TRANSFORM MAP REDUCE
    INTERSECT EXCEPT MINUS SETMINUS RECURSIVE |>
    """
)
# Everyday functions that look at one row and at nothing else.
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
# A parenthesis behind one of these calls nothing.
CALLING_NOTHING = AWAITING | _words("EXISTS VALUES JOIN USING OVER INTO SET ANY SOME END")

# These tell the time: one answer for a whole statement, another for the next one.
CLOCKS = _words(
    """
    CURRENT_TIMESTAMP NOW CURRENT_DATE CURDATE CURRENT_TIME LOCALTIMESTAMP UNIX_TIMESTAMP
    """
)
# Of these, the ones that need no parentheses.
BARE_CLOCKS = _words("CURRENT_TIMESTAMP CURRENT_DATE CURRENT_TIME LOCALTIMESTAMP")
