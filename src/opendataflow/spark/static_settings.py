"""Which Spark settings a running driver can still take, for one session at a time.

Only settings of Spark SQL can change while Spark runs, and of those not the static ones, listed here as Spark 4.3 has
them (`spark.conf.isModifiable`); a test compares the list with the JVM's.
"""

_SQL = "spark.sql."
STATIC_SQL_SETTINGS = frozenset({
    "spark.sql.artifact.copyFromLocalToFs.allowDestLocal",
    "spark.sql.avro.schemaUrlAllowedSchemes",
    "spark.sql.broadcastExchange.maxThreadThreshold",
    "spark.sql.cache.serializer",
    "spark.sql.catalog.spark_catalog.defaultDatabase",
    "spark.sql.catalogImplementation",
    "spark.sql.codegen.cache.maxEntries",
    "spark.sql.codegen.comments",
    "spark.sql.debug",
    "spark.sql.defaultUrlStreamHandlerFactory.enabled",
    "spark.sql.event.truncate.length",
    "spark.sql.extensions",
    "spark.sql.extensions.test.loadFromCp",
    "spark.sql.filesourceTableRelationCacheSize",
    "spark.sql.globalTempDatabase",
    "spark.sql.hive.metastore.barrierPrefixes",
    "spark.sql.hive.metastore.jars",
    "spark.sql.hive.metastore.jars.path",
    "spark.sql.hive.metastore.sharedPrefixes",
    "spark.sql.hive.metastore.version",
    "spark.sql.hive.thriftServer.http.sniHostCheckEnabled",
    "spark.sql.hive.thriftServer.singleSession",
    "spark.sql.hive.version",
    "spark.sql.kafka.disallowedOptions",
    "spark.sql.legacy.hive.thriftServer.allowSettingSystemProperties",
    "spark.sql.legacy.sessionInitWithConfigDefaults",
    "spark.sql.metadataCacheTTLSeconds",
    "spark.sql.queryExecutionListeners",
    "spark.sql.reflect.allowList",
    "spark.sql.restrictedMode.enabled",
    "spark.sql.resultQueryStage.maxThreadThreshold",
    "spark.sql.shuffleExchange.maxThreadThreshold",
    "spark.sql.sources.disabledJdbcConnProviderList",
    "spark.sql.sources.schemaStringLengthThreshold",
    "spark.sql.streaming.streamingQueryListeners",
    "spark.sql.streaming.ui.enabled",
    "spark.sql.streaming.ui.enabledCustomMetricList",
    "spark.sql.streaming.ui.retainedProgressUpdates",
    "spark.sql.streaming.ui.retainedQueries",
    "spark.sql.subquery.maxThreadThreshold",
    "spark.sql.ui.retainedExecutions",
    "spark.sql.warehouse.dir",
})  # fmt: skip


def is_session_setting(key: str) -> bool:
    """True when each session of a running Spark can have its own value."""
    return key.startswith(_SQL) and key not in STATIC_SQL_SETTINGS
