CREATE TABLE "schema_migrations" (
  "name" VARCHAR(128) NOT NULL PRIMARY KEY, "applied_ms" BIGINT NOT NULL);
CREATE TABLE "versions" (
  "name" VARCHAR(32) NOT NULL,
  "version" BIGINT NOT NULL,
  PRIMARY KEY ("name")
);
CREATE TABLE "change_log" (
  "version" BIGINT NOT NULL,
  "kind" VARCHAR(32) NOT NULL,
  "ref" VARCHAR(128) NOT NULL,
  "at_ms" BIGINT NOT NULL,
  PRIMARY KEY ("version")
);
CREATE TABLE "users" (
  "id" VARCHAR(26) NOT NULL,
  "name" VARCHAR(128) NOT NULL,
  "role" VARCHAR(32) NOT NULL,
  "password_hash" VARCHAR(255) NULL,
  "spend_order" VARCHAR(32) NOT NULL,
  "disabled" SMALLINT NOT NULL DEFAULT 0,
  "created_ms" BIGINT NOT NULL, "rpm" BIGINT NOT NULL DEFAULT 0, "tpm" BIGINT NOT NULL DEFAULT 0, "concurrency" BIGINT NOT NULL DEFAULT 0, "groups" TEXT NULL,
  PRIMARY KEY ("id")
);
CREATE TABLE "groups" (
  "id" VARCHAR(26) NOT NULL,
  "name" VARCHAR(128) NOT NULL,
  "multiplier_ppm" BIGINT NOT NULL,
  "models" TEXT NOT NULL,
  "entries" TEXT NOT NULL,
  "rpm" BIGINT NOT NULL DEFAULT 0,
  "tpm" BIGINT NOT NULL DEFAULT 0,
  "concurrency" BIGINT NOT NULL DEFAULT 0,
  "disabled" SMALLINT NOT NULL DEFAULT 0, "translate" SMALLINT NOT NULL DEFAULT 1,
  PRIMARY KEY ("id")
);
CREATE TABLE "models" (
  "id" VARCHAR(26) NOT NULL,
  "name" VARCHAR(128) NOT NULL,
  "context_tokens" BIGINT NULL,
  "max_output_tokens" BIGINT NULL,
  "disabled" SMALLINT NOT NULL DEFAULT 0,
  "created_ms" BIGINT NOT NULL,
  PRIMARY KEY ("id")
);
CREATE TABLE "prices" (
  "model_id" VARCHAR(26) NOT NULL,
  "effective_ms" BIGINT NOT NULL,
  "input" BIGINT NOT NULL,
  "output" BIGINT NOT NULL,
  "cache_read" BIGINT NULL,
  "cache_write" BIGINT NULL,
  "cache_write_1h" BIGINT NULL,
  "reasoning" BIGINT NULL,
  "call" BIGINT NOT NULL DEFAULT 0,
  PRIMARY KEY ("model_id", "effective_ms")
);
CREATE TABLE "channels" (
  "id" VARCHAR(26) NOT NULL,
  "name" VARCHAR(128) NOT NULL,
  "vendor" VARCHAR(32) NOT NULL,
  "family" VARCHAR(32) NOT NULL,
  "base_url" TEXT NOT NULL,
  "groups" TEXT NOT NULL,
  "models" TEXT NOT NULL,
  "priority" BIGINT NOT NULL DEFAULT 0,
  "weight" BIGINT NOT NULL DEFAULT 1,
  "rpm" BIGINT NOT NULL DEFAULT 0,
  "tpm" BIGINT NOT NULL DEFAULT 0,
  "concurrency" BIGINT NOT NULL DEFAULT 0,
  "enabled" SMALLINT NOT NULL DEFAULT 1, "key_rpm" BIGINT NOT NULL DEFAULT 0, "key_tpm" BIGINT NOT NULL DEFAULT 0, "key_concurrency" BIGINT NOT NULL DEFAULT 0, "extra_headers" TEXT NULL, "proxy" TEXT NULL, "ca_file" TEXT NULL, "draining" SMALLINT NOT NULL DEFAULT 0, "translate" SMALLINT NOT NULL DEFAULT 1, "options" TEXT NULL, "shared_ids" TEXT NULL, "proxy_guarded" SMALLINT NOT NULL DEFAULT 0,
  PRIMARY KEY ("id")
);
CREATE TABLE "channel_keys" (
  "id" VARCHAR(26) NOT NULL,
  "channel_id" VARCHAR(26) NOT NULL,
  "position" BIGINT NOT NULL,
  "cipher" TEXT NOT NULL,
  "fingerprint" VARCHAR(64) NOT NULL,
  PRIMARY KEY ("id")
);
CREATE TABLE "api_keys" (
  "id" VARCHAR(26) NOT NULL,
  "user_id" VARCHAR(26) NOT NULL,
  "name" VARCHAR(128) NOT NULL,
  "group_id" VARCHAR(26) NOT NULL,
  "prefix" VARCHAR(32) NOT NULL,
  "last_four" VARCHAR(32) NOT NULL,
  "expires_ms" BIGINT NULL,
  "models" TEXT NOT NULL,
  "networks" TEXT NOT NULL,
  "limit_nanos" BIGINT NULL,
  "limit_window" VARCHAR(32) NOT NULL,
  "rpm" BIGINT NOT NULL DEFAULT 0,
  "tpm" BIGINT NOT NULL DEFAULT 0,
  "concurrency" BIGINT NOT NULL DEFAULT 0,
  "disabled" SMALLINT NOT NULL DEFAULT 0,
  "revoked_ms" BIGINT NULL,
  "created_ms" BIGINT NOT NULL,
  PRIMARY KEY ("id")
);
CREATE TABLE "key_secrets" (
  "digest" BLOB NOT NULL,
  "key_id" VARCHAR(26) NOT NULL,
  "pepper_id" VARCHAR(32) NOT NULL,
  "valid_until_ms" BIGINT NULL,
  PRIMARY KEY ("digest")
);
CREATE TABLE "wallets" (
  "user_id" VARCHAR(26) NOT NULL,
  "balance" BIGINT NOT NULL,
  PRIMARY KEY ("user_id")
);
CREATE TABLE "ledger" (
  "id" VARCHAR(26) NOT NULL,
  "user_id" VARCHAR(26) NOT NULL,
  "kind" VARCHAR(32) NOT NULL,
  "amount" BIGINT NOT NULL,
  "balance_after" BIGINT NOT NULL,
  "reference" VARCHAR(255) NULL,
  "idempotency_id" VARCHAR(255) NULL,
  "reason" TEXT NOT NULL,
  "at_ms" BIGINT NOT NULL,
  "day" INT NULL,
  PRIMARY KEY ("id")
);
CREATE TABLE "usage_records" (
  "day" INT NOT NULL,
  "id" VARCHAR(26) NOT NULL,
  "started_ms" BIGINT NOT NULL,
  "recorded_ms" BIGINT NOT NULL,
  "user_id" VARCHAR(26) NOT NULL,
  "user" VARCHAR(128) NOT NULL,
  "key_id" VARCHAR(26) NOT NULL,
  "key_name" VARCHAR(128) NOT NULL,
  "group" VARCHAR(128) NOT NULL,
  "endpoint" TEXT NOT NULL,
  "family" VARCHAR(32) NOT NULL,
  "upstream_family" VARCHAR(32) NULL,
  "model" TEXT NULL,
  "upstream_model" TEXT NULL,
  "channel" VARCHAR(128) NULL,
  "stream" SMALLINT NULL,
  "status" INT NULL,
  "outcome" VARCHAR(32) NOT NULL,
  "error_code" VARCHAR(64) NULL,
  "error_message" TEXT NULL,
  "input_tokens" BIGINT NOT NULL DEFAULT 0,
  "output_tokens" BIGINT NOT NULL DEFAULT 0,
  "cache_read_tokens" BIGINT NOT NULL DEFAULT 0,
  "cache_write_tokens" BIGINT NOT NULL DEFAULT 0,
  "cache_write_1h_tokens" BIGINT NOT NULL DEFAULT 0,
  "reasoning_tokens" BIGINT NOT NULL DEFAULT 0,
  "usage_source" VARCHAR(32) NOT NULL,
  "prices" TEXT NULL,
  "multiplier_ppm" BIGINT NULL,
  "cost_nanos" BIGINT NOT NULL,
  "billed_to" VARCHAR(255) NULL,
  "charges" TEXT NOT NULL,
  "reported_usage" TEXT NULL,
  "ttft_ms" BIGINT NULL,
  "duration_ms" BIGINT NULL,
  "attempts" TEXT NOT NULL,
  "client_request_id" VARCHAR(255) NULL,
  "upstream_request_id" TEXT NULL,
  "client_ip" VARCHAR(64) NULL,
  "user_agent" TEXT NULL,
  "node" VARCHAR(128) NULL, "trace_id" VARCHAR(32) NULL,
  PRIMARY KEY ("day", "id")
);
CREATE TABLE "stored_responses" (
  "mark" BLOB NOT NULL,
  "user_id" VARCHAR(26) NOT NULL,
  "channel_id" VARCHAR(26) NOT NULL,
  "fingerprint" VARCHAR(64) NOT NULL,
  "expires_ms" BIGINT NOT NULL,
  PRIMARY KEY ("mark", "user_id")
);
CREATE TABLE "journals" (
  "id" VARCHAR(26) NOT NULL,
  "node" VARCHAR(128) NOT NULL,
  "offset" BIGINT NOT NULL,
  "opened_ms" BIGINT NOT NULL,
  "finished_ms" BIGINT NULL, "seen_ms" BIGINT NULL, "version" VARCHAR(64) NULL, "lead_ms" BIGINT NULL, "backlog_bytes" BIGINT NULL, "not_ready" VARCHAR(128) NULL,
  PRIMARY KEY ("id")
);
CREATE TABLE "audit_log" (
  "id" VARCHAR(26) NOT NULL,
  "at_ms" BIGINT NOT NULL,
  "actor" VARCHAR(128) NOT NULL,
  "action" VARCHAR(32) NOT NULL,
  "kind" VARCHAR(32) NOT NULL,
  "name" VARCHAR(300) NOT NULL,
  "before" TEXT NULL,
  "after" TEXT NULL, "address" VARCHAR(64) NULL,
  PRIMARY KEY ("id")
);
CREATE TABLE "usage_by_channel" (
  "day" INT NOT NULL,
  "hour" SMALLINT NOT NULL,
  "channel" VARCHAR(128) NOT NULL,
  "model" VARCHAR(256) NOT NULL,
  "outcome" VARCHAR(32) NOT NULL,
  "endpoint" VARCHAR(128) NOT NULL DEFAULT '',
  "error_code" VARCHAR(64) NOT NULL DEFAULT '',
  "calls" BIGINT NOT NULL DEFAULT 0,
  "input_tokens" BIGINT NOT NULL DEFAULT 0,
  "output_tokens" BIGINT NOT NULL DEFAULT 0,
  "cache_read_tokens" BIGINT NOT NULL DEFAULT 0,
  "cache_write_tokens" BIGINT NOT NULL DEFAULT 0,
  "cache_write_1h_tokens" BIGINT NOT NULL DEFAULT 0,
  "reasoning_tokens" BIGINT NOT NULL DEFAULT 0,
  "cost_nanos" BIGINT NOT NULL DEFAULT 0,
  "first_byte_le_50" INT NOT NULL DEFAULT 0,
  "first_byte_le_100" INT NOT NULL DEFAULT 0,
  "first_byte_le_200" INT NOT NULL DEFAULT 0,
  "first_byte_le_400" INT NOT NULL DEFAULT 0,
  "first_byte_le_600" INT NOT NULL DEFAULT 0,
  "first_byte_le_800" INT NOT NULL DEFAULT 0,
  "first_byte_le_1200" INT NOT NULL DEFAULT 0,
  "first_byte_le_1600" INT NOT NULL DEFAULT 0,
  "first_byte_le_2400" INT NOT NULL DEFAULT 0,
  "first_byte_le_3200" INT NOT NULL DEFAULT 0,
  "first_byte_le_4800" INT NOT NULL DEFAULT 0,
  "first_byte_le_6400" INT NOT NULL DEFAULT 0,
  "first_byte_le_9600" INT NOT NULL DEFAULT 0,
  "first_byte_le_12800" INT NOT NULL DEFAULT 0,
  "first_byte_le_25600" INT NOT NULL DEFAULT 0,
  "first_byte_le_51200" INT NOT NULL DEFAULT 0,
  "first_byte_le_102400" INT NOT NULL DEFAULT 0,
  "first_byte_le_204800" INT NOT NULL DEFAULT 0,
  "first_byte_le_409600" INT NOT NULL DEFAULT 0,
  "first_byte_more" INT NOT NULL DEFAULT 0,
  PRIMARY KEY ("day", "hour", "channel", "model", "outcome", "endpoint", "error_code")
);
CREATE TABLE "usage_by_day" (
  "day" INT NOT NULL,
  "channel" VARCHAR(128) NOT NULL,
  "model" VARCHAR(256) NOT NULL,
  "outcome" VARCHAR(32) NOT NULL,
  "endpoint" VARCHAR(128) NOT NULL DEFAULT '',
  "error_code" VARCHAR(64) NOT NULL DEFAULT '',
  "calls" BIGINT NOT NULL DEFAULT 0,
  "input_tokens" BIGINT NOT NULL DEFAULT 0,
  "output_tokens" BIGINT NOT NULL DEFAULT 0,
  "cache_read_tokens" BIGINT NOT NULL DEFAULT 0,
  "cache_write_tokens" BIGINT NOT NULL DEFAULT 0,
  "cache_write_1h_tokens" BIGINT NOT NULL DEFAULT 0,
  "reasoning_tokens" BIGINT NOT NULL DEFAULT 0,
  "cost_nanos" BIGINT NOT NULL DEFAULT 0,
  "first_byte_le_50" INT NOT NULL DEFAULT 0,
  "first_byte_le_100" INT NOT NULL DEFAULT 0,
  "first_byte_le_200" INT NOT NULL DEFAULT 0,
  "first_byte_le_400" INT NOT NULL DEFAULT 0,
  "first_byte_le_600" INT NOT NULL DEFAULT 0,
  "first_byte_le_800" INT NOT NULL DEFAULT 0,
  "first_byte_le_1200" INT NOT NULL DEFAULT 0,
  "first_byte_le_1600" INT NOT NULL DEFAULT 0,
  "first_byte_le_2400" INT NOT NULL DEFAULT 0,
  "first_byte_le_3200" INT NOT NULL DEFAULT 0,
  "first_byte_le_4800" INT NOT NULL DEFAULT 0,
  "first_byte_le_6400" INT NOT NULL DEFAULT 0,
  "first_byte_le_9600" INT NOT NULL DEFAULT 0,
  "first_byte_le_12800" INT NOT NULL DEFAULT 0,
  "first_byte_le_25600" INT NOT NULL DEFAULT 0,
  "first_byte_le_51200" INT NOT NULL DEFAULT 0,
  "first_byte_le_102400" INT NOT NULL DEFAULT 0,
  "first_byte_le_204800" INT NOT NULL DEFAULT 0,
  "first_byte_le_409600" INT NOT NULL DEFAULT 0,
  "first_byte_more" INT NOT NULL DEFAULT 0,
  PRIMARY KEY ("day", "channel", "model", "outcome", "endpoint", "error_code")
);
CREATE TABLE "codes" (
  "id" VARCHAR(26) NOT NULL,
  "digest" BLOB NOT NULL,
  "pepper_id" VARCHAR(32) NOT NULL,
  "last_four" VARCHAR(32) NOT NULL,
  "amount" BIGINT NOT NULL,
  "expires_ms" BIGINT NULL,
  "created_ms" BIGINT NOT NULL,
  "disabled_ms" BIGINT NULL,
  "redeemed_ms" BIGINT NULL,
  "redeemed_by" VARCHAR(26) NULL,
  PRIMARY KEY ("id")
);
CREATE TABLE "plans" (
  "id" VARCHAR(26) NOT NULL,
  "name" VARCHAR(128) NOT NULL,
  "quota" BIGINT NOT NULL,
  "window" VARCHAR(32) NOT NULL,
  "days" BIGINT NOT NULL,
  "disabled" SMALLINT NOT NULL DEFAULT 0,
  "created_ms" BIGINT NOT NULL,
  PRIMARY KEY ("id")
);
CREATE TABLE "subscriptions" (
  "id" VARCHAR(26) NOT NULL,
  "user_id" VARCHAR(26) NOT NULL,
  "plan_id" VARCHAR(26) NOT NULL,
  "starts_ms" BIGINT NOT NULL,
  "expires_ms" BIGINT NOT NULL,
  "disabled" SMALLINT NOT NULL DEFAULT 0,
  "created_ms" BIGINT NOT NULL,
  PRIMARY KEY ("id")
);
CREATE TABLE "hub_values" (
  "name" VARCHAR(32) NOT NULL,
  "value" TEXT NOT NULL,
  PRIMARY KEY ("name")
);
CREATE TABLE "quotas" (
  "account" VARCHAR(64) NOT NULL,
  "spent" BIGINT NOT NULL,
  "ends_ms" BIGINT NULL,
  PRIMARY KEY ("account")
);
CREATE TABLE "leases" (
  "account" VARCHAR(64) NOT NULL,
  "journal_id" VARCHAR(26) NOT NULL,
  "amount" BIGINT NOT NULL,
  "held" BIGINT NOT NULL,
  "recall" SMALLINT NOT NULL DEFAULT 0,
  PRIMARY KEY ("account", "journal_id")
);
CREATE TABLE "nodes" (
  "name" VARCHAR(128) NOT NULL,
  "seen_ms" BIGINT NOT NULL,
  PRIMARY KEY ("name")
);
CREATE TABLE "keys_aside" (
  "channel_id" VARCHAR(26) NOT NULL,
  "fingerprint" VARCHAR(64) NOT NULL,
  "since_ms" BIGINT NOT NULL,
  "until_ms" BIGINT NOT NULL,
  "times" BIGINT NOT NULL,
  "reason" VARCHAR(128) NOT NULL,
  PRIMARY KEY ("channel_id", "fingerprint")
);
CREATE TABLE "channel_sums" (
  "span" VARCHAR(32) NOT NULL,
  "at_s" BIGINT NOT NULL,
  "scope" VARCHAR(32) NOT NULL,
  "name" VARCHAR(128) NOT NULL,
  "model" VARCHAR(256) NOT NULL,
  "ok" BIGINT NOT NULL DEFAULT 0,
  "failed" BIGINT NOT NULL DEFAULT 0,
  "output_tokens" BIGINT NOT NULL DEFAULT 0,
  "generation_ms" BIGINT NOT NULL DEFAULT 0,
  "first_byte_le_50" BIGINT NOT NULL DEFAULT 0,
  "first_byte_le_100" BIGINT NOT NULL DEFAULT 0,
  "first_byte_le_200" BIGINT NOT NULL DEFAULT 0,
  "first_byte_le_400" BIGINT NOT NULL DEFAULT 0,
  "first_byte_le_600" BIGINT NOT NULL DEFAULT 0,
  "first_byte_le_800" BIGINT NOT NULL DEFAULT 0,
  "first_byte_le_1200" BIGINT NOT NULL DEFAULT 0,
  "first_byte_le_1600" BIGINT NOT NULL DEFAULT 0,
  "first_byte_le_2400" BIGINT NOT NULL DEFAULT 0,
  "first_byte_le_3200" BIGINT NOT NULL DEFAULT 0,
  "first_byte_le_4800" BIGINT NOT NULL DEFAULT 0,
  "first_byte_le_6400" BIGINT NOT NULL DEFAULT 0,
  "first_byte_le_9600" BIGINT NOT NULL DEFAULT 0,
  "first_byte_le_12800" BIGINT NOT NULL DEFAULT 0,
  "first_byte_le_25600" BIGINT NOT NULL DEFAULT 0,
  "first_byte_le_51200" BIGINT NOT NULL DEFAULT 0,
  "first_byte_le_102400" BIGINT NOT NULL DEFAULT 0,
  "first_byte_le_204800" BIGINT NOT NULL DEFAULT 0,
  "first_byte_le_409600" BIGINT NOT NULL DEFAULT 0,
  "first_byte_more" BIGINT NOT NULL DEFAULT 0,
  "total_le_50" BIGINT NOT NULL DEFAULT 0,
  "total_le_100" BIGINT NOT NULL DEFAULT 0,
  "total_le_200" BIGINT NOT NULL DEFAULT 0,
  "total_le_400" BIGINT NOT NULL DEFAULT 0,
  "total_le_600" BIGINT NOT NULL DEFAULT 0,
  "total_le_800" BIGINT NOT NULL DEFAULT 0,
  "total_le_1200" BIGINT NOT NULL DEFAULT 0,
  "total_le_1600" BIGINT NOT NULL DEFAULT 0,
  "total_le_2400" BIGINT NOT NULL DEFAULT 0,
  "total_le_3200" BIGINT NOT NULL DEFAULT 0,
  "total_le_4800" BIGINT NOT NULL DEFAULT 0,
  "total_le_6400" BIGINT NOT NULL DEFAULT 0,
  "total_le_9600" BIGINT NOT NULL DEFAULT 0,
  "total_le_12800" BIGINT NOT NULL DEFAULT 0,
  "total_le_25600" BIGINT NOT NULL DEFAULT 0,
  "total_le_51200" BIGINT NOT NULL DEFAULT 0,
  "total_le_102400" BIGINT NOT NULL DEFAULT 0,
  "total_le_204800" BIGINT NOT NULL DEFAULT 0,
  "total_le_409600" BIGINT NOT NULL DEFAULT 0,
  "total_more" BIGINT NOT NULL DEFAULT 0,
  "last_error" VARCHAR(64) NOT NULL DEFAULT '',
  "last_ok_ms" BIGINT NOT NULL DEFAULT 0,
  "last_failed_ms" BIGINT NOT NULL DEFAULT 0,
  PRIMARY KEY ("span", "at_s", "scope", "name", "model")
);
CREATE TABLE "channel_breakers" (
  "journal_id" VARCHAR(26) NOT NULL,
  "channel_id" VARCHAR(26) NOT NULL,
  "model" VARCHAR(256) NOT NULL,
  "fingerprint" VARCHAR(64) NOT NULL,
  "reason" VARCHAR(32) NOT NULL,
  "since_ms" BIGINT NOT NULL,
  "until_ms" BIGINT NOT NULL,
  PRIMARY KEY ("journal_id", "channel_id", "model", "fingerprint")
);
CREATE TABLE "channel_probes" (
  "channel" VARCHAR(128) NOT NULL,
  "model" VARCHAR(256) NOT NULL,
  "next_ms" BIGINT NOT NULL,
  PRIMARY KEY ("channel", "model")
);
CREATE TABLE "hub_sessions" (
  "digest" BLOB NOT NULL,
  "id" VARCHAR(26) NOT NULL,
  "user_id" VARCHAR(26) NOT NULL,
  "created_ms" BIGINT NOT NULL,
  "seen_ms" BIGINT NOT NULL,
  "address" VARCHAR(64) NOT NULL,
  "agent" VARCHAR(255) NOT NULL,
  PRIMARY KEY ("digest")
);
CREATE TABLE "api_tokens" (
  "id" VARCHAR(26) NOT NULL,
  "digest" BLOB NOT NULL,
  "user_id" VARCHAR(26) NOT NULL,
  "name" VARCHAR(128) NOT NULL,
  "scopes" TEXT NOT NULL,
  "last_four" VARCHAR(26) NOT NULL,
  "created_ms" BIGINT NOT NULL,
  "used_ms" BIGINT NULL,
  "revoked_ms" BIGINT NULL,
  PRIMARY KEY ("id")
);
CREATE TABLE "wrong_paths" (
  "key_id" VARCHAR(26) NOT NULL,
  "method" VARCHAR(32) NOT NULL,
  "path" VARCHAR(200) NOT NULL,
  "calls" BIGINT NOT NULL,
  "first_ms" BIGINT NOT NULL,
  "last_ms" BIGINT NOT NULL,
  "address" VARCHAR(64) NOT NULL,
  "agent" VARCHAR(255) NOT NULL,
  "dismissed_ms" BIGINT NULL,
  PRIMARY KEY ("key_id", "method", "path")
);
CREATE TABLE "usage_by_key" (
  "day" INT NOT NULL,
  "hour" SMALLINT NOT NULL,
  "key_id" VARCHAR(26) NOT NULL,
  "user" VARCHAR(128) NOT NULL,
  "model" VARCHAR(256) NOT NULL,
  "outcome" VARCHAR(32) NOT NULL,
  "endpoint" VARCHAR(128) NOT NULL DEFAULT '',
  "error_code" VARCHAR(64) NOT NULL DEFAULT '',
  "group" VARCHAR(128) NOT NULL DEFAULT '',
  "calls" BIGINT NOT NULL DEFAULT 0,
  "input_tokens" BIGINT NOT NULL DEFAULT 0,
  "output_tokens" BIGINT NOT NULL DEFAULT 0,
  "cache_read_tokens" BIGINT NOT NULL DEFAULT 0,
  "cache_write_tokens" BIGINT NOT NULL DEFAULT 0,
  "cache_write_1h_tokens" BIGINT NOT NULL DEFAULT 0,
  "reasoning_tokens" BIGINT NOT NULL DEFAULT 0,
  "cost_nanos" BIGINT NOT NULL DEFAULT 0,
  "first_byte_le_50" INT NOT NULL DEFAULT 0,
  "first_byte_le_100" INT NOT NULL DEFAULT 0,
  "first_byte_le_200" INT NOT NULL DEFAULT 0,
  "first_byte_le_400" INT NOT NULL DEFAULT 0,
  "first_byte_le_600" INT NOT NULL DEFAULT 0,
  "first_byte_le_800" INT NOT NULL DEFAULT 0,
  "first_byte_le_1200" INT NOT NULL DEFAULT 0,
  "first_byte_le_1600" INT NOT NULL DEFAULT 0,
  "first_byte_le_2400" INT NOT NULL DEFAULT 0,
  "first_byte_le_3200" INT NOT NULL DEFAULT 0,
  "first_byte_le_4800" INT NOT NULL DEFAULT 0,
  "first_byte_le_6400" INT NOT NULL DEFAULT 0,
  "first_byte_le_9600" INT NOT NULL DEFAULT 0,
  "first_byte_le_12800" INT NOT NULL DEFAULT 0,
  "first_byte_le_25600" INT NOT NULL DEFAULT 0,
  "first_byte_le_51200" INT NOT NULL DEFAULT 0,
  "first_byte_le_102400" INT NOT NULL DEFAULT 0,
  "first_byte_le_204800" INT NOT NULL DEFAULT 0,
  "first_byte_le_409600" INT NOT NULL DEFAULT 0,
  "first_byte_more" INT NOT NULL DEFAULT 0,
  PRIMARY KEY ("day", "hour", "key_id", "user", "model", "outcome", "endpoint", "error_code", "group")
);
CREATE TABLE "first_run_links" (
  "digest" BLOB NOT NULL,
  "created_ms" BIGINT NOT NULL,
  PRIMARY KEY ("digest")
);
CREATE TABLE "one_time_codes" (
  "user_id" VARCHAR(26) NOT NULL,
  "sealed" TEXT NOT NULL,
  "last_step" BIGINT NOT NULL,
  "confirmed_ms" BIGINT NULL,
  "recovery" TEXT NOT NULL,
  PRIMARY KEY ("user_id")
);
CREATE TABLE "openid_links" (
  "digest" BLOB NOT NULL,
  "id" VARCHAR(26) NOT NULL,
  "user_id" VARCHAR(26) NOT NULL,
  "issuer" VARCHAR(255) NOT NULL,
  "subject" VARCHAR(255) NOT NULL,
  "created_ms" BIGINT NOT NULL,
  "used_ms" BIGINT NULL,
  PRIMARY KEY ("digest")
);
CREATE TABLE "low_balances" (
  "user_id" VARCHAR(26) NOT NULL,
  "below" BIGINT NOT NULL,
  PRIMARY KEY ("user_id")
);
CREATE TABLE "hub_notices" (
  "id" VARCHAR(26) NOT NULL,
  "text" TEXT NOT NULL,
  "level" VARCHAR(32) NOT NULL,
  "since_ms" BIGINT NOT NULL,
  "until_ms" BIGINT NULL,
  "created_ms" BIGINT NOT NULL,
  "created_by" VARCHAR(128) NOT NULL,
  PRIMARY KEY ("id")
);
CREATE TABLE "upkeep" (
  "name" VARCHAR(32) NOT NULL,
  "owner" VARCHAR(26) NOT NULL,
  "node" VARCHAR(128) NOT NULL,
  "until_ms" BIGINT NOT NULL,
  "begun_ms" BIGINT NULL,
  "ended_ms" BIGINT NULL,
  "next_ms" BIGINT NOT NULL,
  "removed" TEXT NULL,
  "trouble" TEXT NULL,
  PRIMARY KEY ("name")
);
CREATE TABLE "usage_by_user" (
  "day" INT NOT NULL,
  "user" VARCHAR(128) NOT NULL,
  "key_id" VARCHAR(26) NOT NULL,
  "group" VARCHAR(128) NOT NULL DEFAULT '',
  "outcome" VARCHAR(32) NOT NULL,
  "calls" BIGINT NOT NULL DEFAULT 0,
  "input_tokens" BIGINT NOT NULL DEFAULT 0,
  "output_tokens" BIGINT NOT NULL DEFAULT 0,
  "cache_read_tokens" BIGINT NOT NULL DEFAULT 0,
  "cache_write_tokens" BIGINT NOT NULL DEFAULT 0,
  "cache_write_1h_tokens" BIGINT NOT NULL DEFAULT 0,
  "reasoning_tokens" BIGINT NOT NULL DEFAULT 0,
  "cost_nanos" BIGINT NOT NULL DEFAULT 0,
  "first_byte_le_50" INT NOT NULL DEFAULT 0,
  "first_byte_le_100" INT NOT NULL DEFAULT 0,
  "first_byte_le_200" INT NOT NULL DEFAULT 0,
  "first_byte_le_400" INT NOT NULL DEFAULT 0,
  "first_byte_le_600" INT NOT NULL DEFAULT 0,
  "first_byte_le_800" INT NOT NULL DEFAULT 0,
  "first_byte_le_1200" INT NOT NULL DEFAULT 0,
  "first_byte_le_1600" INT NOT NULL DEFAULT 0,
  "first_byte_le_2400" INT NOT NULL DEFAULT 0,
  "first_byte_le_3200" INT NOT NULL DEFAULT 0,
  "first_byte_le_4800" INT NOT NULL DEFAULT 0,
  "first_byte_le_6400" INT NOT NULL DEFAULT 0,
  "first_byte_le_9600" INT NOT NULL DEFAULT 0,
  "first_byte_le_12800" INT NOT NULL DEFAULT 0,
  "first_byte_le_25600" INT NOT NULL DEFAULT 0,
  "first_byte_le_51200" INT NOT NULL DEFAULT 0,
  "first_byte_le_102400" INT NOT NULL DEFAULT 0,
  "first_byte_le_204800" INT NOT NULL DEFAULT 0,
  "first_byte_le_409600" INT NOT NULL DEFAULT 0,
  "first_byte_more" INT NOT NULL DEFAULT 0,
  PRIMARY KEY ("day", "user", "key_id", "group", "outcome")
);
CREATE TABLE "usage_by_group" (
  "day" INT NOT NULL,
  "group" VARCHAR(128) NOT NULL DEFAULT '',
  "model" VARCHAR(256) NOT NULL,
  "outcome" VARCHAR(32) NOT NULL,
  "endpoint" VARCHAR(128) NOT NULL DEFAULT '',
  "error_code" VARCHAR(64) NOT NULL DEFAULT '',
  "calls" BIGINT NOT NULL DEFAULT 0,
  "input_tokens" BIGINT NOT NULL DEFAULT 0,
  "output_tokens" BIGINT NOT NULL DEFAULT 0,
  "cache_read_tokens" BIGINT NOT NULL DEFAULT 0,
  "cache_write_tokens" BIGINT NOT NULL DEFAULT 0,
  "cache_write_1h_tokens" BIGINT NOT NULL DEFAULT 0,
  "reasoning_tokens" BIGINT NOT NULL DEFAULT 0,
  "cost_nanos" BIGINT NOT NULL DEFAULT 0,
  "first_byte_le_50" INT NOT NULL DEFAULT 0,
  "first_byte_le_100" INT NOT NULL DEFAULT 0,
  "first_byte_le_200" INT NOT NULL DEFAULT 0,
  "first_byte_le_400" INT NOT NULL DEFAULT 0,
  "first_byte_le_600" INT NOT NULL DEFAULT 0,
  "first_byte_le_800" INT NOT NULL DEFAULT 0,
  "first_byte_le_1200" INT NOT NULL DEFAULT 0,
  "first_byte_le_1600" INT NOT NULL DEFAULT 0,
  "first_byte_le_2400" INT NOT NULL DEFAULT 0,
  "first_byte_le_3200" INT NOT NULL DEFAULT 0,
  "first_byte_le_4800" INT NOT NULL DEFAULT 0,
  "first_byte_le_6400" INT NOT NULL DEFAULT 0,
  "first_byte_le_9600" INT NOT NULL DEFAULT 0,
  "first_byte_le_12800" INT NOT NULL DEFAULT 0,
  "first_byte_le_25600" INT NOT NULL DEFAULT 0,
  "first_byte_le_51200" INT NOT NULL DEFAULT 0,
  "first_byte_le_102400" INT NOT NULL DEFAULT 0,
  "first_byte_le_204800" INT NOT NULL DEFAULT 0,
  "first_byte_le_409600" INT NOT NULL DEFAULT 0,
  "first_byte_more" INT NOT NULL DEFAULT 0,
  PRIMARY KEY ("day", "group", "model", "outcome", "endpoint", "error_code")
);
CREATE UNIQUE INDEX "users_name" ON "users" ("name");
CREATE UNIQUE INDEX "groups_name" ON "groups" ("name");
CREATE UNIQUE INDEX "models_name" ON "models" ("name");
CREATE UNIQUE INDEX "channels_name" ON "channels" ("name");
CREATE INDEX "channel_keys_channel" ON "channel_keys" ("channel_id", "position");
CREATE UNIQUE INDEX "api_keys_name" ON "api_keys" ("user_id", "name");
CREATE INDEX "api_keys_group" ON "api_keys" ("group_id");
CREATE INDEX "key_secrets_key" ON "key_secrets" ("key_id");
CREATE UNIQUE INDEX "ledger_idempotency" ON "ledger" ("idempotency_id");
CREATE INDEX "ledger_user" ON "ledger" ("user_id", "id");
CREATE INDEX "usage_recorded" ON "usage_records" ("recorded_ms", "id");
CREATE INDEX "usage_by_key_key" ON "usage_by_key" ("key_id", "day");
CREATE INDEX "usage_by_key_user" ON "usage_by_key" ("user", "day");
CREATE INDEX "usage_client_id" ON "usage_records" ("client_request_id") WHERE "client_request_id" IS NOT NULL;
CREATE INDEX "usage_upstream_id" ON "usage_records" ("upstream_request_id") WHERE "upstream_request_id" IS NOT NULL;
CREATE UNIQUE INDEX "codes_digest" ON "codes" ("digest");
CREATE UNIQUE INDEX "plans_name" ON "plans" ("name");
CREATE UNIQUE INDEX "subscriptions_user" ON "subscriptions" ("user_id", "plan_id");
CREATE INDEX "subscriptions_plan" ON "subscriptions" ("plan_id");
CREATE INDEX "quotas_ends" ON "quotas" ("ends_ms");
CREATE INDEX "leases_journal" ON "leases" ("journal_id", "recall");
CREATE INDEX "usage_caller" ON "usage_records" ("user", "day", "id", "outcome", "key_id");
CREATE INDEX "stored_responses_expires" ON "stored_responses" ("expires_ms");
CREATE UNIQUE INDEX "hub_sessions_id" ON "hub_sessions" ("id");
CREATE INDEX "hub_sessions_user_id" ON "hub_sessions" ("user_id");
CREATE UNIQUE INDEX "api_tokens_digest" ON "api_tokens" ("digest");
CREATE INDEX "api_tokens_user_id" ON "api_tokens" ("user_id");
CREATE INDEX "wrong_paths_last_ms" ON "wrong_paths" ("last_ms");
CREATE UNIQUE INDEX "openid_links_id" ON "openid_links" ("id");
CREATE INDEX "openid_links_user_id" ON "openid_links" ("user_id");
CREATE INDEX "usage_by_user_user" ON "usage_by_user" ("user", "day");
INSERT INTO "versions" VALUES ('changes', 0);
INSERT INTO "versions" VALUES ('usage_pruned', 0);
INSERT INTO "upkeep" VALUES ('upkeep', '', '', 0, NULL, NULL, 0, NULL, NULL);
INSERT INTO "schema_migrations" VALUES ('0001_core', 1795801545449);
INSERT INTO "schema_migrations" VALUES ('0002_usage_rollups', 1795801545451);
INSERT INTO "schema_migrations" VALUES ('0003_codes', 1795801545452);
INSERT INTO "schema_migrations" VALUES ('0004_accounts', 1795801545455);
INSERT INTO "schema_migrations" VALUES ('0005_usage_caller', 1795801545459);
INSERT INTO "schema_migrations" VALUES ('0006_stored_responses', 1795801545460);
INSERT INTO "schema_migrations" VALUES ('0007_limits', 1795801545464);
INSERT INTO "schema_migrations" VALUES ('0008_channels', 1795801545466);
INSERT INTO "schema_migrations" VALUES ('0009_channel_status', 1795801545471);
INSERT INTO "schema_migrations" VALUES ('0010_codes_disabled', 1795801545477);
INSERT INTO "schema_migrations" VALUES ('0011_translation', 1795801545481);
INSERT INTO "schema_migrations" VALUES ('0012_hub', 1795801545486);
INSERT INTO "schema_migrations" VALUES ('0013_hub_keys', 1795801545491);
INSERT INTO "schema_migrations" VALUES ('0014_usage_rollups', 1795801545501);
INSERT INTO "schema_migrations" VALUES ('0015_access', 1795801545507);
INSERT INTO "schema_migrations" VALUES ('0016_overview', 1795801545509);
INSERT INTO "schema_migrations" VALUES ('0017_notices', 1795801545510);
INSERT INTO "schema_migrations" VALUES ('0018_upkeep', 1795801545511);
INSERT INTO "schema_migrations" VALUES ('0019_trace_id', 1795801545513);
INSERT INTO "schema_migrations" VALUES ('0020_usage_by_user', 1795801545515);
INSERT INTO "schema_migrations" VALUES ('0021_shared_ids', 1795801545517);
INSERT INTO "schema_migrations" VALUES ('0022_guarded_proxy', 1795801545518);
INSERT INTO "schema_migrations" VALUES ('0023_processes', 1795801545522);
