"""Broker configs of Apache Kafka 4.4 that Kvorum accepts and that have no effect.

`metadata.configs.kafka_keys` parses this text, and only when one of these names is used. A line has
these words:
- the name, the type, and the default (`-` for none, `""` for empty);
- the minimum in Kafka, as `>=N`;
- `dynamic` if a running Kafka broker takes it over, `per-broker` if only for a single broker.
"""

from __future__ import annotations

IGNORED: tuple[tuple[str, str], ...] = (
    (
        "controllers obey it, each by its own file",
        """
        auto.leader.rebalance.enable BOOLEAN true
        broker.stream.grace.ms INT 100
        delegation.token.expiry.check.interval.ms LONG 3600000 >=1
        delegation.token.expiry.time.ms LONG 86400000 >=1
        delegation.token.max.lifetime.ms LONG 604800000 >=1
        kvorum.controller.request.records.max INT 10000 >=1 <=50000
        leader.imbalance.check.interval.seconds LONG 300 >=1
        """,
    ),
    (
        "of TLS there are PEM files, of SASL PLAIN, SCRAM and OAUTHBEARER",
        """
        sasl.jaas.config PASSWORD - per-broker
        sasl.kerberos.kinit.cmd STRING /usr/bin/kinit per-broker
        sasl.kerberos.min.time.before.relogin LONG 60000 per-broker
        sasl.kerberos.principal.to.local.rules LIST DEFAULT per-broker
        sasl.kerberos.service.name STRING - per-broker
        sasl.kerberos.ticket.renew.jitter DOUBLE 0.05 per-broker
        sasl.kerberos.ticket.renew.window.factor DOUBLE 0.8 per-broker
        sasl.login.connect.timeout.ms INT -
        sasl.login.read.timeout.ms INT -
        sasl.login.refresh.buffer.seconds SHORT 300 per-broker
        sasl.login.refresh.min.period.seconds SHORT 60 per-broker
        sasl.login.refresh.window.factor DOUBLE 0.8 per-broker
        sasl.login.refresh.window.jitter DOUBLE 0.05 per-broker
        sasl.login.retry.backoff.max.ms LONG 10000
        sasl.login.retry.backoff.ms LONG 100
        sasl.mechanism.controller.protocol STRING GSSAPI
        sasl.oauthbearer.allow.unverified.audience BOOLEAN false
        sasl.oauthbearer.allow.unverified.issuer BOOLEAN false
        sasl.oauthbearer.assertion.algorithm STRING RS256
        sasl.oauthbearer.assertion.claim.aud STRING -
        sasl.oauthbearer.assertion.claim.exp.seconds INT 300 >=0
        sasl.oauthbearer.assertion.claim.iss STRING -
        sasl.oauthbearer.assertion.claim.jti.include BOOLEAN false
        sasl.oauthbearer.assertion.claim.nbf.seconds INT 60 >=0
        sasl.oauthbearer.assertion.claim.sub STRING -
        sasl.oauthbearer.assertion.file STRING -
        sasl.oauthbearer.assertion.private.key.file STRING -
        sasl.oauthbearer.assertion.private.key.passphrase PASSWORD -
        sasl.oauthbearer.assertion.template.file STRING -
        sasl.oauthbearer.client.credentials.client.id STRING -
        sasl.oauthbearer.client.credentials.client.secret PASSWORD -
        sasl.oauthbearer.jwt.retriever.class CLASS \
            org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever
        sasl.oauthbearer.scope STRING -
        sasl.oauthbearer.token.endpoint.url STRING -
        ssl.keymanager.algorithm STRING SunX509 per-broker
        ssl.keystore.password PASSWORD - per-broker
        ssl.truststore.password PASSWORD - per-broker
        """,
    ),
    (
        "logs have no remote tier",
        """
        follower.fetch.last.tiered.offset.enable BOOLEAN false dynamic
        log.local.retention.bytes LONG -2 >=-2 dynamic
        log.local.retention.ms LONG -2 >=-2 dynamic
        log.remote.copy.lag.bytes LONG -1 >=-1 dynamic
        log.remote.copy.lag.ms LONG 0 >=-1 dynamic
        remote.fetch.max.wait.ms INT 500 >=1 dynamic
        remote.list.offsets.request.timeout.ms LONG 30000 >=1 dynamic
        remote.log.index.file.cache.total.size.bytes LONG 1073741824 >=1 dynamic
        remote.log.index.file.cache.ttl.ms LONG 900000 >=-1
        remote.log.manager.copier.thread.pool.size INT 10 >=1 dynamic
        remote.log.manager.copy.max.bytes.per.second LONG 9223372036854775807 >=1 dynamic
        remote.log.manager.copy.quota.window.num INT 11 >=1
        remote.log.manager.copy.quota.window.size.seconds INT 1 >=1
        remote.log.manager.expiration.thread.pool.size INT 10 >=1 dynamic
        remote.log.manager.fetch.max.bytes.per.second LONG 9223372036854775807 >=1 dynamic
        remote.log.manager.fetch.quota.window.num INT 11 >=1
        remote.log.manager.fetch.quota.window.size.seconds INT 1 >=1
        remote.log.manager.follower.thread.pool.size INT 2 >=1 dynamic
        remote.log.manager.task.interval.ms LONG 30000 >=1
        remote.log.manager.task.retry.backoff.max.ms LONG 30000 >=1
        remote.log.manager.task.retry.backoff.ms LONG 500 >=1
        remote.log.manager.task.retry.jitter DOUBLE 0.2 >=0
        remote.log.manager.thread.pool.size INT 2 >=1
        remote.log.metadata.custom.metadata.max.bytes INT 128 >=0
        remote.log.metadata.manager.class.name STRING \
            org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager
        remote.log.metadata.manager.class.path STRING -
        remote.log.metadata.manager.impl.prefix STRING rlmm.config.
        remote.log.metadata.manager.listener.name STRING -
        remote.log.reader.max.pending.tasks INT 100 >=1
        remote.log.reader.threads INT 10 >=1 dynamic
        remote.log.storage.manager.class.name STRING -
        remote.log.storage.manager.class.path STRING -
        remote.log.storage.manager.impl.prefix STRING rsm.config.
        """,
    ),
    (
        "share groups have no such parts",
        """
        group.share.assignor.offload.enable BOOLEAN true dynamic
        group.share.assignors LIST simple
        group.share.dlq.manager.class.name STRING \
            org.apache.kafka.server.share.dlq.DefaultShareGroupDLQManager
        group.share.persister.class.name STRING \
            org.apache.kafka.server.share.persister.DefaultStatePersister
        share.coordinator.append.linger.ms INT -1 >=-1
        share.coordinator.cached.buffer.max.bytes INT 1048588 >=524288 dynamic
        share.coordinator.load.buffer.size INT 5242880 >=1
        share.coordinator.state.topic.compression.codec INT 0
        share.coordinator.threads INT 1 >=1
        share.coordinator.write.timeout.ms INT 5000 >=1
        share.fetch.purgatory.purge.interval.requests INT 1000
        """,
    ),
    (
        "the assignor is sticky, and makes no warm-up tasks",
        """
        group.streams.assignor.offload.enable BOOLEAN true dynamic
        group.streams.assignors LIST sticky
        group.streams.num.warmup.replicas INT 2 >=0
        """,
    ),
    (
        "metrics are served over HTTP, see metrics.listener and metrics.names",
        """
        kafka.metrics.polling.interval.secs INT 10 >=1
        kafka.metrics.reporters LIST ""
        metric.reporters LIST org.apache.kafka.common.metrics.JmxReporter dynamic
        metrics.num.samples INT 2 >=1
        metrics.recording.level STRING INFO
        metrics.sample.window.ms LONG 30000 >=1
        """,
    ),
    (
        "a request that waits is forgotten when it is answered",
        """
        delete.records.purgatory.purge.interval.requests INT 1
        fetch.purgatory.purge.interval.requests INT 1000
        producer.purgatory.purge.interval.requests INT 1000
        """,
    ),
    (
        "a broker serves its requests on one event loop",
        """
        background.threads INT 10 >=1 dynamic
        group.coordinator.background.threads INT 2 >=1
        group.coordinator.threads INT 4 >=1
        num.io.threads INT 8 >=1 dynamic
        num.network.threads INT 3 >=1 dynamic
        queued.max.request.bytes LONG -1
        queued.max.requests INT 500 >=1
        """,
    ),
    (
        "a broker compacts one log at a time",
        """
        log.cleaner.threads INT 1 >=0 dynamic
        """,
    ),
    (
        "logs are opened one after the other",
        """
        num.recovery.threads.per.data.dir INT 2 >=1 dynamic
        """,
    ),
    (
        "one move between directories copies at a time, and its rate holds in every second",
        """
        alter.log.dirs.replication.quota.window.num INT 11 >=1
        alter.log.dirs.replication.quota.window.size.seconds INT 1 >=1
        num.replica.alter.log.dirs.threads INT -
        """,
    ),
    (
        "followers fetch over one connection to each leader",
        """
        num.replica.fetchers INT 1 >=1 dynamic
        replica.socket.receive.buffer.bytes INT 65536
        """,
    ),
    (
        "a coordinator writes at once and loads as its log is read",
        """
        add.partitions.to.txn.retry.backoff.max.ms INT 100 >=0
        add.partitions.to.txn.retry.backoff.ms INT 20 >=1
        group.coordinator.append.linger.ms INT -1 >=-1
        group.coordinator.cached.buffer.max.bytes INT 1048588 >=524288 dynamic
        offsets.commit.timeout.ms INT 5000 >=1
        offsets.load.buffer.size INT 5242880 >=1
        offsets.topic.compression.codec INT 0
        transaction.state.log.load.buffer.size INT 5242880 >=1
        """,
    ),
    (
        "the coordinator assigns in its own thread, and resolves expressions as topics change",
        """
        group.consumer.assignor.offload.enable BOOLEAN true dynamic
        group.consumer.regex.refresh.interval.ms INT 600000 >=10000
        """,
    ),
    (
        "classic and consumer are always served, share groups and streams by share.version and "
        "streams.version",
        """
        group.coordinator.rebalance.protocols LIST classic,consumer,streams
        """,
    ),
    (
        "every transactional batch is verified",
        """
        transaction.partition.verification.enable BOOLEAN true dynamic
        """,
    ),
    (
        "nodes talk gRPC to the controllers, with a patience of their own",
        """
        controller.performance.always.log.threshold.ms LONG 2000 >=0
        controller.performance.sample.period.ms LONG 60000 >=100
        controller.quorum.append.linger.ms INT 25 >=0
        controller.quorum.election.backoff.max.ms INT 1000 >=0
        controller.quorum.fetch.max.bytes INT 1048576 >=1
        controller.quorum.fetch.snapshot.max.bytes INT 1048576 >=1
        metadata.max.idle.interval.ms INT 500 >=0
        server.max.startup.time.ms LONG 9223372036854775807 >=0
        socket.connection.setup.timeout.max.ms LONG 30000
        """,
    ),
    (
        "the metadata log rolls by size alone",
        """
        internal.metadata.delete.delay.millis LONG 60000
        internal.metadata.log.segment.bytes INT -
        internal.metadata.max.batch.size.in.bytes INT 8388608
        metadata.log.segment.ms LONG 604800000
        """,
    ),
    (
        "quotas are measured over quota.window.num samples",
        """
        controller.quota.window.num INT 11 >=1
        controller.quota.window.size.seconds INT 1 >=1
        replication.quota.window.num INT 11 >=1
        replication.quota.window.size.seconds INT 1 >=1
        """,
    ),
    (
        "a broker hands over its leaderships whenever it is told to stop",
        """
        controlled.shutdown.enable BOOLEAN true
        """,
    ),
    (
        "every listener opens at the same time",
        """
        early.start.listeners LIST -
        """,
    ),
    (
        "these checks have intervals of Kvorum's own",
        """
        log.flush.start.offset.checkpoint.interval.ms INT 60000 >=0
        log.initial.task.delay.ms LONG 30000 >=0
        producer.id.expiration.check.interval.ms INT 600000 >=1
        unclean.leader.election.interval.ms LONG 300000 >=1
        """,
    ),
    (
        "the answer has a limit of Kvorum's own",
        """
        max.request.partition.size.limit INT 2000 >=1
        """,
    ),
    (
        "a push has a limit of Kvorum's own, 1 MiB",
        """
        telemetry.max.bytes INT 1048576 >=1
        """,
    ),
    (
        "every version that is served is stable",
        """
        unstable.api.versions.enable BOOLEAN false
        unstable.feature.versions.enable BOOLEAN false
        """,
    ),
)
"""Groups of configs, each with the reason why they have no effect."""
