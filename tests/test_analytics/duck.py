"""Every table of the job, computed by DuckDB from the same files, to compare Spark's tables with.
The definitions are those of kvorum/analytics/catalogue.py, written row by row: no time slices, no
combined buckets, no broadcast. Spark computes the tables in stages and must get the same ones.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb

ANSWERS = (
    "TOPIC_ALREADY_EXISTS", "UNKNOWN_TOPIC_OR_PART", "UNKNOWN_TOPIC_OR_PARTITION",
    "UNKNOWN_TOPIC_ID", "INVALID_TOPIC_EXCEPTION", "TOPIC_EXCEPTION", "POLICY_VIOLATION",
    "INVALID_REPLICATION_FACTOR", "INVALID_PARTITIONS", "INVALID_REPLICA_ASSIGNMENT",
    "INVALID_CONFIG", "INVALID_REQUEST",
)  # fmt: skip

_OPERATIONS = f"""
create view ops as
select run_id, type, time_ms, latency_ms,
  case when f in ('create-topic', 'delete-topic') then '(administration)' else topic end topic,
  case when f in ('create-topic', 'delete-topic') then -1 else partition end as partition,
  time_ms - coalesce(latency_ms, 0) as invoked_ms,
  type = 'ok' or (f in ('create-topic', 'delete-topic') and type = 'fail'
    and regexp_extract(coalesce(error, ''), '^[A-Z_]+') in {ANSWERS!r}) as is_answer
from history where operation = 'send' or f in ('create-topic', 'delete-topic');
"""

#: Each answer with the next answer and the oldest waiting operation; then the answers far apart.
_GAPS = """
create view gaps as
with ordered as (
  select *, floor(time_ms / 100) as slice,
    min(case when is_answer then time_ms end) over later as next_ms,
    min(invoked_ms) over later as waiting_ms
  from ops
  window later as (partition by run_id, topic, partition order by floor(time_ms / 100)
                   range between 1 following and unbounded following)
), ends as (select run_id, max(time_ms) as load_end_ms from ops group by 1),
candidates as (
  select run_id, topic, partition, max(time_ms) as answered_ms, min(next_ms) as next_ms,
         min(waiting_ms) as waiting_ms, false as is_first
  from ordered where is_answer and waiting_ms is not null group by 1, 2, 3, slice
  union all
  select run_id, topic, partition, null, min(case when is_answer then time_ms end),
         min(invoked_ms), true
  from ops group by 1, 2, 3
), spans as (
  select run_id, topic, partition,
    greatest(coalesce(answered_ms, waiting_ms), waiting_ms) as begin_ms,
    coalesce(next_ms, load_end_ms) as end_ms, next_ms is not null as is_over, is_first
  from candidates join ends using (run_id)
)
select *, end_ms - begin_ms as length_ms from spans where end_ms - begin_ms >= 100;
create view silences as select * from gaps where length_ms >= 200;
"""

#: The gaps as `silences` and `unavailability` count them: without the loads' own starts.
_STARTS = """
create view hits as
select g.run_id, g.topic, g.partition, coalesce(f.struck_ms, f.begin_ms) as hit_ms,
  f.end_ms as fault_end_ms, g.begin_ms, g.end_ms, g.length_ms
from gaps g join faults f using (run_id) where g.is_first;
create table starts as
select run_id, topic, partition, begin_ms,
  coalesce((select min(hit_ms) from hits h where (h.run_id, h.topic, h.partition)
    = (g.run_id, g.topic, g.partition) and hit_ms >= begin_ms + 250 and hit_ms < g.end_ms), end_ms)
    as until_ms
from gaps g
where is_first and is_over and length_ms >= 200 and not exists (
  select 1 from hits h where (h.run_id, h.topic, h.partition) = (g.run_id, g.topic, g.partition)
  and hit_ms <= begin_ms + least(250, length_ms)
  and (fault_end_ms is null or fault_end_ms + 3000 >= begin_ms));
create view counted_gaps as
with moved as (
  select g.* replace (case when s.until_ms - s.begin_ms <= 5000 then s.until_ms else g.begin_ms end
    as begin_ms)
  from gaps g left join starts s on (s.run_id, s.topic, s.partition, s.begin_ms)
    = (g.run_id, g.topic, g.partition, g.begin_ms))
select * replace (end_ms - begin_ms as length_ms) from moved where end_ms - begin_ms >= 100;
"""

_RECOVERIES = """
create view struck as
with known as (select * replace (coalesce(struck_ms, begin_ms) as struck_ms) from faults)
select f.*, case when end_ms is null then null else greatest(end_ms, least(end_ms + 3000,
    coalesce((select min(o.struck_ms) from known o
      where o.run_id = f.run_id and o.struck_ms >= f.end_ms) - 250, end_ms + 3000))) end as last_ms
from known f;
create table outages as
with g as (
  select *, begin_ms - lag(end_ms) over (partition by run_id, topic, partition order by begin_ms)
    as gap_ms
  from silences)
select *, (select max(o.begin_ms) from g o where (o.run_id, o.topic, o.partition)
    = (g.run_id, g.topic, g.partition) and o.begin_ms <= g.begin_ms
    and (o.gap_ms is null or o.gap_ms > 50)) as since_ms
from g;
create table met as
select s.*, f.fault_id, f.struck_ms, s.end_ms - greatest(s.begin_ms, f.struck_ms) as lost_ms,
  s.since_ms >= f.struck_ms - 250 and (f.last_ms is null or s.since_ms < f.last_ms) as is_begun
from outages s join struck f using (run_id)
where s.end_ms >= f.struck_ms and (f.last_ms is null or s.begin_ms < f.last_ms);
create table blamed as
with g as (select run_id, topic, partition, since_ms, bool_or(is_begun) as is_any_begun,
    min(struck_ms) as first_ms from met group by all)
select m.*, is_begun or (not is_any_begun and struck_ms = first_ms) as is_owner
from met m join g using (run_id, topic, partition, since_ms);
create view overlapping as from blamed where is_owner;
create view subjects as
select run_id, fault_id, topic, unnest(held_partitions) as partition from struck
union select run_id, fault_id, '(administration)', -1 from struck where is_active_controller
union select run_id, fault_id, topic, partition from overlapping;
create view moves as
with led as (
  select run_id, time_ms, epoch, leader,
    case when what = 'leader' then topic else '(administration)' end as topic,
    case when what = 'leader' then partition else -1 end as partition
  from milestones where what in ('leader', 'active-controller') and leader >= 0
), before as (
  select *, lag(leader) over (partition by run_id, topic, partition order by time_ms, epoch) as b
  from led
) select * from before where b <> leader or topic = '(administration)';
create table with_ids as
select run_id, fault_id, f.struck_ms, f.last_ms, case when nodes[1] similar to '[a-z]+-[0-9]+'
  then cast(split_part(nodes[1], '-', 2) as int) end as id,
  (select max(end_ms) from overlapping o where (o.run_id, o.fault_id) = (f.run_id, f.fault_id))
    as owned_to_ms
from struck f;
create table others as
select c.run_id, c.fault_id, c.begin_ms, c.end_ms, n.id
from blamed c join overlapping a on (a.run_id, a.topic, a.partition, a.since_ms)
  = (c.run_id, c.topic, c.partition, c.since_ms)
join with_ids n on (n.run_id, n.fault_id) = (a.run_id, a.fault_id)
where not c.is_owner;
create table fences as
select n.run_id, n.fault_id, min(m.time_ms) as fence_at
from with_ids n
join milestones m on m.run_id = n.run_id and m.what = 'fenced' and m.time_ms >= n.struck_ms
  and (n.last_ms is null or m.time_ms < n.last_ms or m.time_ms < n.owned_to_ms)
  and (n.id is null or m.broker = n.id)
where not exists (select 1 from others o where (o.run_id, o.fault_id) = (n.run_id, n.fault_id)
  and m.time_ms >= o.begin_ms and m.time_ms < o.end_ms
  and (o.id = m.broker or (o.id is null and n.id is null)))
group by all;
create table elections as
select f.run_id, f.fault_id, m.topic, m.partition, min(m.time_ms) as elect_at
from struck f join moves m on m.run_id = f.run_id and m.time_ms >= f.struck_ms
where (f.last_ms is null or m.time_ms < f.last_ms or m.time_ms < (
    select max(end_ms) from overlapping o where (o.run_id, o.fault_id, o.topic, o.partition)
    = (f.run_id, f.fault_id, m.topic, m.partition)))
  and not exists (select 1 from blamed o where not o.is_owner
    and (o.run_id, o.fault_id, o.topic, o.partition)
    = (f.run_id, f.fault_id, m.topic, m.partition)
    and m.time_ms >= o.begin_ms and m.time_ms < o.end_ms)
group by all;
create view recoveries as
select s.run_id, r.experiment, r.system, r.version, r.controllers, r.brokers, s.fault_id, f.fault,
  s.topic, s.partition,
  case when s.topic = '(administration)' then 'administration'
    when s.topic = f.topic and list_contains(f.led_partitions, s.partition) then 'led'
    else 'other' end as role,
  coalesce((select sum(lost_ms) from overlapping o where (o.run_id, o.fault_id, o.topic,
    o.partition) = (s.run_id, s.fault_id, s.topic, s.partition)), 0) as unavailable_ms,
  coalesce((select sum(lost_ms) from blamed o where not is_owner and (o.run_id, o.fault_id, o.topic,
    o.partition) = (s.run_id, s.fault_id, s.topic, s.partition)), 0) as continued_ms,
  coalesce((select bool_and(is_over) from overlapping o where (o.run_id, o.fault_id, o.topic,
    o.partition) = (s.run_id, s.fault_id, s.topic, s.partition)), true) as is_over,
  (select fence_at from fences m where (m.run_id, m.fault_id) = (s.run_id, s.fault_id))
    - f.struck_ms as fence_ms,
  (select elect_at from elections m where (m.run_id, m.fault_id, m.topic, m.partition)
    = (s.run_id, s.fault_id, s.topic, s.partition)) - f.struck_ms as elect_ms,
  (select arg_max(case when is_over then end_ms end, length_ms) from overlapping o
    where (o.run_id, o.fault_id, o.topic, o.partition)
    = (s.run_id, s.fault_id, s.topic, s.partition) and is_over) as over_at,
  (select max_by(is_over, length_ms) from overlapping o where (o.run_id, o.fault_id, o.topic,
    o.partition) = (s.run_id, s.fault_id, s.topic, s.partition)) as worst_is_over,
  f.struck_ms
from subjects s join struck f using (run_id, fault_id) join runs r using (run_id);
"""

_LATENCY = """
create view acknowledged as
select run_id, row_number() over () as id, floor(time_ms / 1000) as second,
  floor(invoked_ms / 1000) as sent_second, latency_ms,
  floor(ln(greatest(latency_ms, 0.001) / 0.001) / ln(1.02)) as bucket
from ops where topic <> '(administration)' and type = 'ok' and latency_ms is not null;
create table numbered as from acknowledged;
create table spells as
select f.run_id, f.fault, floor(f.struck_ms / 1000) as first,
  case when f.end_ms is null then 1e12 else floor(greatest(f.end_ms, coalesce((
    select max(o.end_ms) from overlapping o where (o.run_id, o.fault_id) = (f.run_id, f.fault_id)
  ), f.end_ms)) / 1000) end as until
from struck f;
create view touched as
select a.*, f.fault from numbered a left join (
  select distinct n.run_id, n.id, s.fault from numbered n join spells s using (run_id)
  where n.second >= s.first and n.sent_second <= s.until
) f using (run_id, id);
"""

_LOSSES = """
create view losses as
select run_id, 'broker ' || broker_id as loss, 'broker' as kind, [broker_id] as lost from brokers
union all
select a.run_id, 'brokers ' || a.broker_id || ' and ' || b.broker_id, 'pair',
  [a.broker_id, b.broker_id]
from brokers a join brokers b on a.run_id = b.run_id and a.broker_id < b.broker_id
union all
select run_id, 'rack ' || rack, 'rack', list(broker_id) from brokers where rack is not null
group by run_id, rack
union all
select run_id, 'zone ' || regexp_extract(rack, '^(.*)/[^/]*$', 1), 'zone', list(broker_id)
from brokers where rack like '%/%' group by run_id, regexp_extract(rack, '^(.*)/[^/]*$', 1);
create view needed as
select p.*, coalesce(
  (select cast(value as int) from configs c where c.run_id = p.run_id and c.resource_type = 2
    and c.resource_name = p.topic and c.name = 'min.insync.replicas'),
  (select cast(value as int) from configs c where c.run_id = p.run_id and c.resource_type = 4
    and c.resource_name = '' and c.name = 'min.insync.replicas'), 1) as min_insync
from partitions p;
"""


def _percentiles(source: str, groups: str) -> str:
    def at(share: float) -> str:
        bucket = f"quantile_disc(bucket, {share})"
        return f"0.001 * pow(1.02, {bucket} + 0.5)"

    return (
        f"select {groups}, count(*) as acknowledged, {at(0.5)} as p50, {at(0.95)} as p95, "
        f"{at(0.99)} as p99, max(latency_ms) as max_ms, "
        "quantile_disc(bucket, 0.5) as b50, quantile_disc(bucket, 0.95) as b95, "
        f"quantile_disc(bucket, 0.99) as b99 from {source} group by {groups}"
    )


def _capped(share: int, source: str, same: str) -> str:
    """A percentile is never above the longest latency of its bucket."""
    return (
        f"least(p{share}, (select max(latency_ms) from {source} x where {same} "
        f"and x.bucket = g.b{share})) as p{share}_ms"
    )


_QUERIES = {
    "outcomes": f"""
with g as ({_percentiles("acknowledged", "run_id")}), o as (
  select run_id, count(*) filter (type = 'invoke') as invoked, count(*) filter (type = 'ok')
    as acknowledged, count(*) filter (type = 'fail') as failed, count(*) filter (type = 'info')
    as "unknown", (max(time_ms) - min(invoked_ms)) / 1000 as seconds
  from ops where topic <> '(administration)' group by 1)
select o.run_id, experiment, system, version, verdict, invoked, o.acknowledged, failed, "unknown",
  seconds, o.acknowledged / seconds as acknowledged_per_second,
  {_capped(50, "acknowledged", "x.run_id = g.run_id")},
  {_capped(95, "acknowledged", "x.run_id = g.run_id")},
  {_capped(99, "acknowledged", "x.run_id = g.run_id")}, g.max_ms
from o join g using (run_id) join runs using (run_id)""",
    "silences": """select run_id, topic, partition, begin_ms, end_ms, length_ms, is_over
from counted_gaps where length_ms >= 200""",
    "unavailability": """
select o.run_id, o.topic, o.partition,
  (select max(length_ms) from counted_gaps g where (g.run_id, g.topic, g.partition)
    = (o.run_id, o.topic, o.partition)) as longest_ms,
  (select count(*) from counted_gaps g where length_ms >= 200 and (g.run_id, g.topic, g.partition)
    = (o.run_id, o.topic, o.partition)) as silences,
  coalesce((select sum(length_ms) from counted_gaps g where length_ms >= 200
    and (g.run_id, g.topic, g.partition) = (o.run_id, o.topic, o.partition)), 0) as unavailable_ms
from (select distinct run_id, topic, partition from ops) o""",
    "recoveries": """
select run_id, experiment, system, version, controllers, brokers, fault_id, fault, topic, partition,
  role, unavailable_ms, continued_ms, is_over,
  least(coalesce(fence_ms, elect_ms), coalesce(elect_ms, fence_ms)) as detect_ms,
  fence_ms, elect_ms,
  case when worst_is_over then over_at - struck_ms end as ack_ms
from recoveries""",
    "failover_by_fault": """
with r as (select *, continued_ms > 0 and unavailable_ms = 0 as is_apart from recoveries)
select system, version, fault, role, controllers, brokers,
  count(*) filter (not is_apart) as observations, count(*) filter (is_apart) as continued,
  count(distinct (run_id, fault_id)) as faults, count(*) filter (not is_over) as never,
  quantile_disc(unavailable_ms, 0.5) filter (not is_apart) as unavailable_p50_ms,
  quantile_disc(unavailable_ms, 0.95) filter (not is_apart) as unavailable_p95_ms,
  max(unavailable_ms) filter (not is_apart) as unavailable_max_ms,
  quantile_disc(least(coalesce(fence_ms, elect_ms), coalesce(elect_ms, fence_ms)), 0.5)
    filter (not is_apart) as detect_p50_ms,
  quantile_disc(fence_ms, 0.5) filter (not is_apart) as fence_p50_ms,
  quantile_disc(elect_ms, 0.5) filter (not is_apart) as elect_p50_ms,
  quantile_disc(case when worst_is_over then over_at - struck_ms end, 0.5)
    filter (not is_apart) as ack_p50_ms
from r group by all""",
    "latency_by_fault": f"""
create or replace temp table t as select system, version, coalesce(fault, 'none') as fault,
  latency_ms, bucket from touched join runs using (run_id);
with g as ({_percentiles("t", "system, version, fault")})
select system, version, fault, acknowledged,
  {_capped(50, "t", "(x.system, x.version, x.fault) = (g.system, g.version, g.fault)")},
  {_capped(95, "t", "(x.system, x.version, x.fault) = (g.system, g.version, g.fault)")},
  {_capped(99, "t", "(x.system, x.version, x.fault) = (g.system, g.version, g.fault)")}, max_ms
from g""",
    "share_deliveries": """
with d as (
  select h.run_id, h."group" as share_group, h.topic, h.partition, h."offset", h.index, h.time_ms,
    coalesce((select arg_max(f.fault, f.fault_id) from faults f where f.run_id = h.run_id
      and h.time_ms >= coalesce(f.struck_ms, f.begin_ms)
      and (f.end_ms is null or h.time_ms < f.end_ms)), 'none') as fault,
    (select min(a.time_ms) from history a where a.operation = 'acknowledge' and a.type = 'ok'
      and a.acknowledgement = 'accept' and (a.run_id, a."group", a.topic, a.partition, a."offset")
        = (h.run_id, h."group", h.topic, h.partition, h."offset")) as accepted_ms
  from history h where h.operation = 'deliver' and h.type = 'ok'
), n as (
  select *, row_number() over (partition by run_id, share_group, topic, partition, "offset"
      order by time_ms, index) as number,
    count(*) over (partition by run_id, share_group, topic, partition, "offset") as deliveries
  from d
), r as (select *, case when number = 1 then accepted_ms - time_ms end as accept_ms from n)
select run_id, share_group, topic, fault, count(*) filter (number = 1) as records,
  count(*) filter (number > 1) as redeliveries,
  max(deliveries) filter (number = 1) as deliveries_max, count(accept_ms) as accepted,
  quantile_disc(accept_ms, 0.5) as accept_p50_ms, quantile_disc(accept_ms, 0.99) as accept_p99_ms,
  max(accept_ms) as accept_max_ms
from r group by all""",
    "isr_churn": """
with b as (
  select *, lag(isr) over w as was, lag(leader) over w as led from milestones
  where what in ('isr', 'leader') and topic is not null
  window w as (partition by run_id, topic, partition, what order by wall_ms, epoch))
select run_id, topic, partition,
  count(*) filter (what = 'isr' and len(list_filter(was, lambda x: not list_contains(isr, x))) > 0)
    as shrinks,
  count(*) filter (what = 'isr' and len(list_filter(isr, lambda x: not list_contains(was, x))) > 0)
    as expands,
  count(*) filter (what = 'leader' and led <> leader) as leader_changes,
  count(*) filter (what = 'leader' and led <> leader and leader < 0) as times_offline
from b group by all""",
    "broker_skew": """
with c as (
  select run_id, broker_id, rack, is_fenced,
    (select count(*) from partitions p where p.run_id = b.run_id and leader = broker_id) as leaders,
    (select count(*) from partitions p where p.run_id = b.run_id and replicas[1] = broker_id)
      as preferred_leaders,
    (select count(*) from partitions p where p.run_id = b.run_id
      and list_contains(replicas, broker_id)) as replicas
  from brokers b)
select *, leaders / avg(leaders) over (partition by run_id) as leader_skew,
  replicas / avg(replicas) over (partition by run_id) as replica_skew from c""",
    "rack_skew": """
with c as (
  select run_id, broker_id, rack,
    (select count(*) from partitions p where p.run_id = b.run_id and leader = broker_id) as leaders,
    (select count(*) from partitions p where p.run_id = b.run_id
      and list_contains(replicas, broker_id)) as replicas
  from brokers b where rack is not null)
select run_id, rack, count(*) as brokers, sum(leaders) as leaders, sum(replicas) as replicas,
  avg(leaders) / (select avg(leaders) from c d where d.run_id = c.run_id) as leader_skew,
  avg(replicas) / (select avg(replicas) from c d where d.run_id = c.run_id) as replica_skew
from c group by run_id, rack""",
    "what_if": """
select l.run_id, loss, kind, len(lost) as brokers_lost, count(*) as partitions,
  count(*) filter (list_has_any(replicas, lost)) as hit,
  count(*) filter (len(list_filter(isr, lambda x: not list_contains(lost, x))) = 0) as offline,
  count(*) filter (len(list_filter(isr, lambda x: not list_contains(lost, x))) < min_insync)
    as not_writable,
  count(*) filter (len(list_filter(isr, lambda x: not list_contains(lost, x))) = 1)
    as one_copy_left,
  any_value((select count(*) filter (case when kind in ('broker', 'pair')
      then not list_contains(lost, c.controller_id) else not list_contains(lost, b.broker_id) end)
      * 2 > count(*)
    from controllers c join brokers b on b.run_id = c.run_id and b.host = c.host
    where c.run_id = l.run_id)) as has_majority
from losses l join needed p using (run_id) group by l.run_id, loss, kind, lost""",
    "record_mix": """
select run_id, record_type, record_version, count(*) as records,
  sum(octet_length(encode(payload_json))) as payload_bytes,
  count(*) / sum(count(*)) over (partition by run_id) as share
from metadata_records group by run_id, record_type, record_version""",
    "metadata_growth": """
select run_id, cast(floor(timestamp_ms / 10000) * 10000 as bigint) as begin_wall_ms,
  count(*) as records, max("offset") + 1 as end_offset, max(epoch) as epoch
from metadata_records group by all""",
    "fencing_causes": """
with hits as (
  select m.run_id, m.broker, m.wall_ms, arg_max(f.fault, f.at) as cause
  from (select distinct run_id, broker, wall_ms from milestones where what = 'fenced') m
  left join (select run_id, fault, unnest(nodes) as node,
      floor(begin_wall_ms - (begin_ms - coalesce(struck_ms, begin_ms))) as at from faults) f
    on f.run_id = m.run_id and f.node = 'broker-' || m.broker
    and m.wall_ms - f.at between 0 and 60000
  group by all)
select run_id, broker as broker_id, coalesce(cause, 'no fault') as cause, count(*) as fencings
from hits group by all""",
    "voter_lag": """
select run_id, voter_id, count(lag) as samples, count(*) filter (lag is null) as never,
  quantile_disc(lag, 0.5) as lag_p50, quantile_disc(lag, 0.99) as lag_p99, max(lag) as lag_max,
  count(*) filter (lag > 0) as samples_behind
from voters where voter_id <> leader_id group by all""",
    "duels": """
with latest as (
  select * from runs where kind = 'chaos'
  qualify row_number() over (partition by experiment, seed, system, version
    order by started_wall_ms desc, run_id desc) = 1
), f as (
  select l.*, o.acknowledged, o.p50_ms, o.p99_ms,
    (select coalesce(max(u.longest_ms), 0) from spark_unavailability u
      where u.run_id = l.run_id and u.partition >= 0) as longest_silence_ms,
    (select max(u.unavailable_ms) from spark_unavailability u
      where u.run_id = l.run_id and u.partition >= 0) as unavailable_ms
  from latest l left join spark_outcomes o using (run_id))
select a.experiment, a.seed,
  a.system as first_system, a.version as first_version, a.run_id as first_run_id,
  a.verdict as first_verdict,
  a.acknowledged as first_acknowledged, a.p50_ms as first_p50_ms, a.p99_ms as first_p99_ms,
  a.longest_silence_ms as first_longest_silence_ms, a.unavailable_ms as first_unavailable_ms,
  b.system as second_system, b.version as second_version, b.run_id as second_run_id,
  b.verdict as second_verdict,
  b.acknowledged as second_acknowledged, b.p50_ms as second_p50_ms, b.p99_ms as second_p99_ms,
  b.longest_silence_ms as second_longest_silence_ms, b.unavailable_ms as second_unavailable_ms
from f a join f b on a.experiment = b.experiment and a.seed = b.seed
where a.system = 'kvorum' and b.system <> 'kvorum'""",
}

COMPUTED = tuple(_QUERIES)


class Duck:
    """A lake as DuckDB sees it. output: the job's output folder, for the tables that are made of
    other tables."""

    def __init__(self, lake: Path, output: Path) -> None:
        self._db = duckdb.connect()
        for folder in sorted(lake.iterdir()):
            if folder.is_dir():
                self._db.execute(
                    f"create view {folder.name} as select * from read_parquet("
                    f"'{folder}/v=2/*/*.parquet', hive_partitioning = true, "
                    "hive_types = {'run_id': varchar}, union_by_name = true)"
                )
        for name in ("outcomes", "unavailability"):
            self._db.execute(
                f"create view spark_{name} as from read_parquet('{output}/tables/{name}.parquet')"
            )
        for statements in (_OPERATIONS, _GAPS, _STARTS, _RECOVERIES, _LATENCY, _LOSSES):
            self._db.execute(statements)

    def rows(self, table: str) -> list[dict[str, Any]]:
        """The table's rows, with its columns by name."""
        found = self._db.execute(_QUERIES[table])
        names = [item[0] for item in found.description]
        return [dict(zip(names, row, strict=True)) for row in found.fetchall()]

    def count(self, source: str) -> int:
        """The number of rows of a view of these statements, with its conditions."""
        found = self._db.execute(f"select count(*) from {source}").fetchone()
        assert found is not None
        return int(found[0])

    def query(self, text: str, table: str, output: Path) -> list[tuple[Any, ...]]:
        """The rows that a query over one table of the output finds."""
        self._db.execute(
            f"create or replace temp view {table}_out as "
            f"from read_parquet('{output}/tables/{table}.parquet')"
        )
        return self._db.execute(text.replace(f"FROM {table}", f"FROM {table}_out")).fetchall()
