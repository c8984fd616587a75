--------------------------- MODULE CatalogCommits ---------------------------
(* A small model of catalog-managed commits: stage -> ratify (one or two      *)
(* tables, all or nothing) -> publish -> notify, lost replies and retries,    *)
(* slow publishers, a reader, and the file-system pointer's writer.          *)
(* Each switch in Bugs turns one rule off; TLC must then find a trace.        *)
EXTENDS Naturals, Sequences, FiniteSets

CONSTANTS Clients,      \* each client runs one transaction; its id is the client
          Multi,        \* the clients whose transaction touches both tables
          Pubs,         \* publisher processes
          MaxTry,       \* commit attempts per client
          Parts,        \* subset of {"reader", "pointer", "cleanup"}: the other processes
          Bugs          \* subset of BugNames

BugNames == {"NoIdempotence", "ListFirst", "NotifyBeforePut", "OutOfOrder",
             "NonAtomicMulti", "PointerUnguarded", "PerTableRead", "Overwrite",
             "StagedPromotion", "NoLease", "CleanUnpublished",
             "ForgetOnPurge"}
ASSUME Bugs \subseteq BugNames

Tables == {"A", "B"}
Nil    == "nil"
TabsOf(c) == IF c \in Multi THEN Tables ELSE {"A"}

VARIABLES ratified,  \* table -> sequence of txn ids; position = version
          tracked,   \* table -> versions the catalog still stores
          pub,       \* table -> [version -> txn or Nil], the published files
          cut,       \* table -> a checkpoint stands at this version; files up to it are cleaned
          staged,    \* set of <<table, version, txn>>: files in _staged_commits
          pc, base, tries, \* clients
          ppc, job,  \* publishers
          ptr, qpc, qjob, \* the pointer of each table, and two pointer writers
          rpc, rlist, rcut, rcat, rres \* one reader
vars == <<ratified, tracked, pub, cut, staged, pc, base, tries, ppc, job, ptr, qpc, qjob, rpc, rlist, rcut, rcat, rres>>

MaxV == Cardinality(Clients) * MaxTry
V    == 1..MaxV
Writers == {"q1", "q2"}
Len1(t) == Len(ratified[t])
Range(s) == {s[i] : i \in 1..Len(s)}
NoPub == [v \in V |-> Nil]
NoJob == <<"A", 0, Nil>>
NoCat == [t \in Tables |-> [latest |-> 0, commits |-> {}]]
Ready(t, v) == IF v - 1 <= cut[t] THEN TRUE ELSE pub[t][v - 1] # Nil   \* v-1 is published

Init ==
  /\ ratified = [t \in Tables |-> <<>>]
  /\ tracked = [t \in Tables |-> {}]
  /\ pub = [t \in Tables |-> NoPub] /\ cut = [t \in Tables |-> 0]
  /\ staged = {}
  /\ pc = [c \in Clients |-> "idle"]
  /\ base = [c \in Clients |-> [t \in Tables |-> 0]]
  /\ tries = [c \in Clients |-> 0]
  /\ ppc = [p \in Pubs |-> "idle"]
  /\ job = [p \in Pubs |-> NoJob]
  /\ ptr = [t \in Tables |-> 0]
  /\ qpc = [q \in Writers |-> "idle"] /\ qjob = [q \in Writers |-> <<"A", 0>>]
  /\ rpc = "idle" /\ rlist = pub /\ rcut = cut /\ rcat = NoCat
  /\ rres = [t \in Tables |-> <<>>]

\* ---- clients ---------------------------------------------------------------
Stage(c) ==   \* read latest, write the staged file(s)
  /\ pc[c] \in {"idle", "conflict"} /\ tries[c] < MaxTry
  /\ base' = [base EXCEPT ![c] = [t \in Tables |-> Len1(t)]]
  /\ staged' = IF "StagedPromotion" \in Bugs   \* nobody else may look at this directory
               THEN staged \cup {<<t, Len1(t) + 1, c>> : t \in TabsOf(c)} ELSE staged
  /\ tries' = [tries EXCEPT ![c] = @ + 1]
  /\ pc' = [pc EXCEPT ![c] = "sent"]
  /\ UNCHANGED <<cut, ratified, tracked, pub, ppc, job, ptr, qpc, qjob, rpc, rlist, rcut, rcat, rres>>

Already(c) == \A t \in TabsOf(c) : c \in Range(ratified[t])
Known(c)   ==  \* what the server can still recognise as a replay
  IF "NoIdempotence" \in Bugs THEN FALSE
  ELSE IF "ForgetOnPurge" \in Bugs
       THEN \A t \in TabsOf(c) : \E v \in tracked[t] : ratified[t][v] = c
       ELSE Already(c)
Fits(c)    == \A t \in TabsOf(c) : Len1(t) = base[c][t]
Apply(c, ts) ==
  /\ ratified' = [t \in Tables |-> IF t \in ts THEN Append(ratified[t], c) ELSE ratified[t]]
  /\ tracked'  = [t \in Tables |-> IF t \in ts THEN tracked[t] \cup {Len1(t) + 1} ELSE tracked[t]]

Server(c) ==  \* the server handles c's request; the reply arrives or is lost
  /\ pc[c] \in {"sent", "unknown"}
  /\ \/ /\ Known(c)     \* replay: answer success
        /\ pc' = [pc EXCEPT ![c] = "acked"]
        /\ UNCHANGED <<ratified, tracked>>
     \/ /\ ~Known(c) /\ Fits(c)
        /\ \/ Apply(c, TabsOf(c))
           \/ "NonAtomicMulti" \in Bugs /\ \E t \in TabsOf(c) : Apply(c, {t})
        /\ \E r \in {"acked", "unknown"} : pc' = [pc EXCEPT ![c] = r]
     \/ /\ ~Known(c) /\ ~Fits(c)
        /\ pc' = [pc EXCEPT ![c] = IF tries[c] < MaxTry THEN "conflict" ELSE "aborted"]
        /\ UNCHANGED <<ratified, tracked>>
  /\ UNCHANGED <<cut, pub, staged, base, tries, ppc, job, ptr, qpc, qjob, rpc, rlist, rcut, rcat, rres>>

Crash(c) ==
  /\ pc[c] \in {"sent", "unknown", "conflict"}
  /\ pc' = [pc EXCEPT ![c] = "crashed"]
  /\ UNCHANGED <<cut, ratified, tracked, pub, staged, base, tries, ppc, job, ptr, qpc, qjob, rpc, rlist, rcut, rcat, rres>>

\* ---- publishers: pick a ratified commit, put-if-absent, tell the catalog -----
Pick(p) ==
  /\ ppc[p] = "idle"
  /\ \E t \in Tables :
       \/ \E v \in tracked[t] :
            /\ IF "OutOfOrder" \in Bugs THEN TRUE ELSE Ready(t, v)
            /\ job' = [job EXCEPT ![p] = <<t, v, ratified[t][v]>>]
       \/ /\ "StagedPromotion" \in Bugs   \* trusts a staged file without asking the catalog
          /\ \E s \in staged : s[1] = t /\ Ready(t, s[2])
                               /\ job' = [job EXCEPT ![p] = s]
  /\ ppc' = [ppc EXCEPT ![p] = IF "NotifyBeforePut" \in Bugs THEN "notify" ELSE "put"]
  /\ UNCHANGED <<cut, ratified, tracked, pub, staged, pc, base, tries, ptr, qpc, qjob, rpc, rlist, rcut, rcat, rres>>

Put(p) ==     \* may run arbitrarily late (a slow publisher)
  /\ ppc[p] = "put"
  /\ LET t == job[p][1]  v == job[p][2] IN
       pub' = IF pub[t][v] = Nil \/ "Overwrite" \in Bugs
              THEN [pub EXCEPT ![t][v] = job[p][3]] ELSE pub
  /\ ppc' = [ppc EXCEPT ![p] = IF "NotifyBeforePut" \in Bugs THEN "idle" ELSE "notify"]
  /\ job' = IF "NotifyBeforePut" \in Bugs THEN [job EXCEPT ![p] = NoJob] ELSE job
  /\ UNCHANGED <<cut, ratified, tracked, staged, pc, base, tries, ptr, qpc, qjob, rpc, rlist, rcut, rcat, rres>>

Notify(p) ==  \* the catalog forgets everything up to v
  /\ ppc[p] = "notify"
  /\ LET t == job[p][1]  v == job[p][2] IN
       tracked' = [tracked EXCEPT ![t] = {w \in @ : w > v}]
  /\ ppc' = [ppc EXCEPT ![p] = IF "NotifyBeforePut" \in Bugs THEN "put" ELSE "idle"]
  /\ job' = IF "NotifyBeforePut" \in Bugs THEN job ELSE [job EXCEPT ![p] = NoJob]
  /\ UNCHANGED <<cut, ratified, pub, staged, pc, base, tries, ptr, qpc, qjob, rpc, rlist, rcut, rcat, rres>>

PubCrash(p) ==
  /\ ppc[p] # "idle" /\ ppc' = [ppc EXCEPT ![p] = "idle"] /\ job' = [job EXCEPT ![p] = NoJob]
  /\ UNCHANGED <<cut, ratified, tracked, pub, staged, pc, base, tries, ptr, qpc, qjob, rpc, rlist, rcut, rcat, rres>>

\* ---- pointer writers: read the ratified version, later write the pointer ------
QRead(q) ==
  /\ qpc[q] = "idle"
  /\ \E t \in Tables : qjob' = [qjob EXCEPT ![q] = <<t, Len1(t)>>]
  /\ qpc' = [qpc EXCEPT ![q] = "write"]
  /\ UNCHANGED <<cut, ratified, tracked, pub, staged, pc, base, tries, ppc, job, ptr, rpc, rlist, rcut, rcat, rres>>
QWrite(q) ==
  /\ qpc[q] = "write"
  /\ LET t == qjob[q][1]  n == qjob[q][2] IN
       ptr' = IF n > ptr[t] \/ "PointerUnguarded" \in Bugs THEN [ptr EXCEPT ![t] = n] ELSE ptr
  /\ qpc' = [qpc EXCEPT ![q] = "idle"] /\ qjob' = [qjob EXCEPT ![q] = <<"A", 0>>]
  /\ UNCHANGED <<cut, ratified, tracked, pub, staged, pc, base, tries, ppc, job, rpc, rlist, rcut, rcat, rres>>

\* ---- the reader: catalog first, then LIST -------------------------------------
CatOf(t) == [latest |-> Len1(t), commits |-> {<<v, ratified[t][v]>> : v \in tracked[t]}]
RCat ==
  /\ rpc = IF "ListFirst" \in Bugs THEN "second" ELSE "idle"
  /\ rcat' = [t \in Tables |-> CatOf(t)]
  /\ rpc' = IF "ListFirst" \in Bugs THEN "build" ELSE IF "PerTableRead" \in Bugs THEN "catB" ELSE "second"
  /\ UNCHANGED <<cut, ratified, tracked, pub, staged, pc, base, tries, ppc, job, ptr, qpc, qjob, rlist, rcut, rres>>
RCatB ==   \* only with PerTableRead: table B is asked for again, later
  /\ rpc = "catB" /\ rcat' = [rcat EXCEPT !["B"] = CatOf("B")] /\ rpc' = "second"
  /\ UNCHANGED <<cut, ratified, tracked, pub, staged, pc, base, tries, ppc, job, ptr, qpc, qjob, rlist, rcut, rres>>
RList ==
  /\ rpc = IF "ListFirst" \in Bugs THEN "idle" ELSE "second"
  /\ rlist' = pub /\ rcut' = cut
  /\ rpc' = IF "ListFirst" \in Bugs THEN "second" ELSE "build"
  /\ UNCHANGED <<cut, ratified, tracked, pub, staged, pc, base, tries, ppc, job, ptr, qpc, qjob, rcat, rres>>
Txn(t, v) ==  \* the catalog's commit wins over the file for the same version
  LET cs == {x \in rcat[t].commits : x[1] = v} IN
  IF cs # {} THEN (CHOOSE x \in cs : TRUE)[2]
  ELSE IF v <= rcut[t] THEN ratified[t][v] \* from the checkpoint
  ELSE rlist[t][v]
RBuild ==
  /\ rpc = "build"
  /\ IF \E t \in Tables : rcut[t] > rcat[t].latest      \* cleaned past our version: start again
     THEN rpc' = "idle" /\ UNCHANGED rres
     ELSE /\ rres' = [t \in Tables |-> [v \in 1..rcat[t].latest |-> Txn(t, v)]]
          /\ rpc' = "done"
  /\ rlist' = [t \in Tables |-> NoPub] /\ rcut' = [t \in Tables |-> 0] /\ rcat' = NoCat
  /\ UNCHANGED <<ratified, tracked, pub, cut, staged, pc, base, tries, ppc, job, ptr, qpc, qjob>>

\* ---- metadata cleanup: a checkpoint covers k, then the files up to k go ---------
\* (the protocol keeps the commit file at the checkpoint's own version: read k as
\* "newest deleted version", with the checkpoint at k + 1 or its state equal to k's)
Leased(t, k) == \E p \in Pubs : ppc[p] # "idle" /\ job[p][1] = t /\ job[p][2] <= k
Cleanup ==
  \E t \in Tables : \E k \in 1..Len1(t) :
    /\ k > cut[t]
    /\ IF "CleanUnpublished" \in Bugs THEN TRUE   \* checkpoints a version that is not published
       ELSE \A v \in (cut[t] + 1)..k : pub[t][v] # Nil /\ v \notin tracked[t]
    /\ IF "NoLease" \in Bugs THEN TRUE ELSE ~Leased(t, k)
    /\ cut' = [cut EXCEPT ![t] = k]
    /\ pub' = [pub EXCEPT ![t] = [v \in V |-> IF v <= k THEN Nil ELSE @[v]]]
    /\ UNCHANGED <<ratified, tracked, staged, pc, base, tries, ppc, job, ptr, qpc, qjob, rpc, rlist, rcut, rcat, rres>>

Next ==
  \/ \E c \in Clients : Stage(c) \/ Server(c) \/ Crash(c)
  \/ \E p \in Pubs : Pick(p) \/ Put(p) \/ Notify(p) \/ PubCrash(p)
  \/ "pointer" \in Parts /\ \E q \in Writers : QRead(q) \/ QWrite(q)
  \/ "cleanup" \in Parts /\ Cleanup
  \/ "reader" \in Parts /\ (RCat \/ RCatB \/ RList \/ RBuild)

Fair == /\ \A c \in Clients : WF_vars(Stage(c)) /\ SF_vars(Server(c) /\ pc'[c] # "unknown")
        /\ \A p \in Pubs : WF_vars(Pick(p)) /\ SF_vars(Put(p)) /\ SF_vars(Notify(p))
Spec == Init /\ [][Next]_vars /\ Fair

\* ---- safety --------------------------------------------------------------------
AtMostOnce    == \A t \in Tables : \A i, j \in 1..Len1(t) : ratified[t][i] = ratified[t][j] => i = j
AllOrNothing  == \A c \in Multi : (c \in Range(ratified["A"])) <=> (c \in Range(ratified["B"]))
AckMeansIn    == \A c \in Clients : pc[c] = "acked" => Already(c)
AbortMeansOut == \A c \in Clients : pc[c] = "aborted" => \A t \in Tables : c \notin Range(ratified[t])
PubIsRatified == \A t \in Tables : \A v \in V : pub[t][v] # Nil => v <= Len1(t) /\ pub[t][v] = ratified[t][v]
PubIsPrefix   == \A t \in Tables : \A v \in V : pub[t][v] # Nil => (v - 1 <= cut[t] \/ pub[t][v - 1] # Nil)
NothingLost   == \A t \in Tables : \A v \in 1..Len1(t) : v \in tracked[t] \/ pub[t][v] # Nil \/ v <= cut[t]
NoResurrection== \A t \in Tables : \A v \in 1..cut[t] : pub[t][v] = Nil
CheckpointLate== \A t \in Tables : \A v \in tracked[t] : v > cut[t]   \* only published versions
ReadNoGap     == rpc = "done" => \A t \in Tables : \A v \in 1..Len(rres[t]) : rres[t][v] = ratified[t][v]
ReadNoFracture== rpc = "done" => \A c \in Multi : (c \in Range(rres["A"])) <=> (c \in Range(rres["B"]))
PtrNotAhead   == \A t \in Tables : ptr[t] <= Len1(t)
LogImmutable  == [][\A t \in Tables : /\ Len(ratified'[t]) >= Len1(t)
                                      /\ \A v \in 1..Len1(t) : ratified'[t][v] = ratified[t][v]
                                      /\ \A v \in V : pub[t][v] # Nil =>
                                           pub'[t][v] = pub[t][v] \/ v <= cut'[t]]_vars
PtrMonotone   == [][\A t \in Tables : ptr'[t] >= ptr[t]]_vars
\* ---- liveness ------------------------------------------------------------------
Published == \A t \in Tables : \A v \in V : (v <= Len1(t)) ~> (pub[t][v] # Nil \/ v <= cut[t])
Decided   == \A c \in Clients : (pc[c] = "sent") ~> (pc[c] \in {"acked", "aborted", "conflict", "crashed"})
=============================================================================
