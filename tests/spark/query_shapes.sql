-- Queries over two tables: {t} has id, p, k, v, s; {u} has id, p, name. Rows of {u} meet none, one or
-- several rows of {t}. A blank line ends a query.

-- Scalar subqueries, correlated and not, in every clause

SELECT id, (SELECT max(name) FROM {u} u WHERE u.id = t.id) FROM {t} t

SELECT id, (SELECT count(*) FROM {u} u WHERE u.p = t.p) FROM {t} t

SELECT id, (SELECT count(*) FROM {u} u WHERE u.p = t.p AND u.id < 5) + v FROM {t} t WHERE p = 1

SELECT id, (SELECT max(v) FROM {t}) - v FROM {t}

SELECT id, (SELECT (SELECT max(v) FROM {t}) + count(*) FROM {u} u WHERE u.p = t.p) FROM {t} t

SELECT id FROM {t} t WHERE v > (SELECT avg(v) FROM {t} i WHERE i.p = t.p)

SELECT id FROM {t} t WHERE v = (SELECT max(v) FROM {t} i WHERE i.p <=> t.p)

SELECT p, sum(v) FROM {t} t GROUP BY p HAVING sum(v) > (SELECT avg(v) FROM {t})

SELECT p, sum(v) FROM {t} t GROUP BY p HAVING count(*) > (SELECT count(*) FROM {u} u WHERE u.p =
  t.p)

SELECT p, sum((SELECT count(*) FROM {u} u WHERE u.id = t.id)) FROM {t} t GROUP BY p

SELECT id FROM {t} t ORDER BY v % (SELECT count(*) FROM {u}), id LIMIT 7

SELECT CASE WHEN v > (SELECT avg(v) FROM {t}) THEN 'high' ELSE s END, id FROM {t}

SELECT CASE WHEN EXISTS (SELECT 1 FROM {u} u WHERE u.id = t.id) THEN p ELSE -1 END FROM {t} t

SELECT coalesce((SELECT max(u.name) FROM {u} u WHERE u.id = t.id AND u.p = t.p), s) FROM {t} t

SELECT t.id, u.name FROM {t} t JOIN {u} u ON t.id = u.id AND t.v > (SELECT avg(v) FROM {t})

-- EXISTS and IN

SELECT id, EXISTS (SELECT 1 FROM {u} u WHERE u.id = t.id) FROM {t} t

SELECT id, NOT EXISTS (SELECT 1 FROM {u} u WHERE u.p = t.p AND u.name = t.s) FROM {t} t

SELECT id, t.id IN (SELECT u.id FROM {u} u) FROM {t} t

SELECT id, p NOT IN (SELECT u.p FROM {u} u WHERE u.p IS NOT NULL) FROM {t} t

SELECT id FROM {t} t WHERE EXISTS (SELECT 1 FROM {u} u WHERE u.id = t.id AND u.p = t.p)

SELECT id FROM {t} t WHERE NOT EXISTS (SELECT 1 FROM {u} u WHERE u.id = t.id)

SELECT id FROM {t} t WHERE p IN (SELECT p FROM {u}) OR v < 3

SELECT id FROM {t} t WHERE id NOT IN (SELECT id FROM {u} WHERE id IS NOT NULL)

SELECT id FROM {t} t WHERE id NOT IN (SELECT id FROM {u})

SELECT id FROM {t} t WHERE (id, p) IN (SELECT id, p FROM {u})

SELECT id FROM {t} t WHERE (EXISTS (SELECT 1 FROM {u} u WHERE u.p = t.p)) = (v > 4)

SELECT p, count_if(EXISTS (SELECT 1 FROM {u} u WHERE u.id = t.id)) FROM {t} t GROUP BY p

SELECT p FROM {t} t GROUP BY p HAVING p IN (SELECT p FROM {u})

SELECT t.id FROM {t} t LEFT JOIN {u} u ON t.id = u.id AND EXISTS (SELECT 1 FROM {t} x WHERE x.p
  = u.p)

-- Windows

SELECT id, row_number() OVER (PARTITION BY p ORDER BY v, id) FROM {t}

SELECT id, sum(v) OVER (PARTITION BY p ORDER BY id ROWS BETWEEN 1 PRECEDING AND CURRENT ROW)
  FROM {t}

SELECT id, v - lag(v, 1, 0) OVER (ORDER BY id), ntile(3) OVER (ORDER BY id) FROM {t} WHERE p = 2

SELECT * FROM (SELECT id, p, rank() OVER (PARTITION BY p ORDER BY v DESC, id) r FROM {t}) WHERE
  r < 3

SELECT id FROM (SELECT id, (SELECT count(*) FROM {u} u WHERE u.p = t.p) c, sum(v) OVER
  (PARTITION BY p) w FROM {t} t) WHERE w > c

-- Set operations

SELECT id, p FROM {t} UNION ALL SELECT id, p FROM {u}

SELECT p FROM {t} UNION SELECT p FROM {u}

SELECT p FROM {t} INTERSECT ALL SELECT p FROM {u}

SELECT id, p FROM {t} EXCEPT SELECT id, p FROM {u}

SELECT p, (SELECT max(name) FROM {u} u WHERE u.p = a.p) FROM (SELECT p FROM {t} EXCEPT SELECT 1)
  a

(SELECT p FROM {t} MINUS SELECT p FROM {u}) UNION ALL SELECT count(*) FROM {t}

-- Joins

SELECT t.id, u.name FROM {t} t FULL JOIN {u} u ON t.id = u.id

SELECT t.id, u.id FROM {t} t RIGHT JOIN {u} u ON t.p = u.p AND t.v > 5

SELECT t.id FROM {t} t LEFT SEMI JOIN {u} u ON t.p = u.p AND t.s <> u.name

SELECT t.id FROM {t} t LEFT ANTI JOIN {u} u ON t.p = u.p

SELECT a.id, b.id FROM {t} a JOIN {t} b ON a.p = b.p AND a.id < b.id

SELECT * FROM {t} NATURAL JOIN {u}

-- Lateral

SELECT t.id, l.n FROM {t} t, LATERAL (SELECT max(name) n FROM {u} u WHERE u.id = t.id) l

SELECT t.id, l.name FROM {t} t LEFT JOIN LATERAL (SELECT name FROM {u} u WHERE u.p = t.p ORDER
  BY name LIMIT 1) l

SELECT id, e FROM {t} LATERAL VIEW explode(array(p, v)) x AS e

SELECT id, e, (SELECT count(*) FROM {u} u WHERE u.p = x.e) FROM {t} LATERAL VIEW OUTER
  explode(if(p = 1, array(), array(p))) x AS e

-- Grouping, pivots

SELECT p, s, sum(v) FROM {t} GROUP BY CUBE (p, s)

SELECT p, s, sum(v), grouping_id() FROM {t} GROUP BY GROUPING SETS ((p), (s), ())

SELECT * FROM (SELECT p, s, v FROM {t}) PIVOT (sum(v) FOR p IN (1, 2, 3))

SELECT * FROM (SELECT id, p, v FROM {t}) UNPIVOT (value FOR name IN (p, v))

SELECT DISTINCT p, s FROM {t}

SELECT count(DISTINCT p), count(*), min(id), max(s) FROM {t}

-- Common table expressions

WITH a AS (SELECT p, sum(v) w FROM {t} GROUP BY p), b AS (SELECT * FROM a WHERE w > 3) SELECT
  t.id, b.w FROM {t} t JOIN b ON t.p = b.p

WITH a AS (WITH b AS (SELECT id, p FROM {t}) SELECT p, count(*) c FROM b GROUP BY p) SELECT
  u.id, (SELECT max(c) FROM a WHERE a.p = u.p) FROM {u} u

WITH RECURSIVE r(n) AS (SELECT min(id) FROM {t} UNION ALL SELECT n + 1 FROM r WHERE n < 3)
  SELECT r.n, t.p FROM r JOIN {t} t ON t.id = r.n

WITH RECURSIVE r(id, p) AS (SELECT id, p FROM {t} WHERE id = 21 UNION ALL SELECT t.id, t.p FROM
  {t} t JOIN r ON t.id = r.id + 1) SELECT * FROM r

WITH a AS (SELECT id, (SELECT max(name) FROM {u} u WHERE u.id = t.id) n FROM {t} t) SELECT x.n,
  y.id FROM a x JOIN a y ON x.id = y.id

-- What goes around the relation

SELECT id, p FROM {t} ORDER BY p NULLS LAST, id LIMIT 5 OFFSET 3

SELECT id, (SELECT max(name) FROM {u} u WHERE u.id = t.id) FROM {t} t LIMIT 1000

SELECT id, (SELECT max(name) FROM {u} u WHERE u.id = t.id) FROM (SELECT * FROM {t} WHERE v > 2)
  t

SELECT id, (SELECT max(name) FROM {u} u WHERE u.id = t.id) FROM {t} t WHERE p IS NULL OR p > 1

SELECT /*+ REPARTITION(3) */ id, (SELECT max(name) FROM {u} u WHERE u.id = t.id) FROM {t} t

SELECT /*+ COALESCE(1) */ id, EXISTS (SELECT 1 FROM {u} u WHERE u.id = t.id) FROM {t} t

FROM {t} t |> WHERE v > 1 |> EXTEND (SELECT count(*) FROM {u} u WHERE u.p = t.p) AS c |>
  AGGREGATE sum(c) GROUP BY p

SELECT (SELECT count(*) FROM {t}), EXISTS (SELECT 1 FROM {u} WHERE p = 3)
