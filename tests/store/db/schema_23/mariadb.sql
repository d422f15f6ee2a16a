CREATE TABLE "api_keys" (
  "id" varchar(26) NOT NULL,
  "user_id" varchar(26) NOT NULL,
  "name" varchar(128) NOT NULL,
  "group_id" varchar(26) NOT NULL,
  "prefix" varchar(32) NOT NULL,
  "last_four" varchar(32) NOT NULL,
  "expires_ms" bigint(20) DEFAULT NULL,
  "models" mediumtext NOT NULL,
  "networks" mediumtext NOT NULL,
  "limit_nanos" bigint(20) DEFAULT NULL,
  "limit_window" varchar(32) NOT NULL,
  "rpm" bigint(20) NOT NULL DEFAULT 0,
  "tpm" bigint(20) NOT NULL DEFAULT 0,
  "concurrency" bigint(20) NOT NULL DEFAULT 0,
  "disabled" smallint(6) NOT NULL DEFAULT 0,
  "revoked_ms" bigint(20) DEFAULT NULL,
  "created_ms" bigint(20) NOT NULL,
  PRIMARY KEY ("id"),
  UNIQUE KEY "api_keys_name" ("user_id","name"),
  KEY "api_keys_group" ("group_id")
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_nopad_bin;
CREATE TABLE "api_tokens" (
  "id" varchar(26) NOT NULL,
  "digest" binary(32) NOT NULL,
  "user_id" varchar(26) NOT NULL,
  "name" varchar(128) NOT NULL,
  "scopes" text NOT NULL,
  "last_four" varchar(26) NOT NULL,
  "created_ms" bigint(20) NOT NULL,
  "used_ms" bigint(20) DEFAULT NULL,
  "revoked_ms" bigint(20) DEFAULT NULL,
  PRIMARY KEY ("id"),
  UNIQUE KEY "api_tokens_digest" ("digest"),
  KEY "api_tokens_user_id" ("user_id")
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_nopad_bin;
CREATE TABLE "audit_log" (
  "id" varchar(26) NOT NULL,
  "at_ms" bigint(20) NOT NULL,
  "actor" varchar(128) NOT NULL,
  "action" varchar(32) NOT NULL,
  "kind" varchar(32) NOT NULL,
  "name" varchar(300) NOT NULL,
  "before" mediumtext DEFAULT NULL,
  "after" mediumtext DEFAULT NULL,
  "address" varchar(64) DEFAULT NULL,
  PRIMARY KEY ("id")
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_nopad_bin;
CREATE TABLE "change_log" (
  "version" bigint(20) NOT NULL,
  "kind" varchar(32) NOT NULL,
  "ref" varchar(128) NOT NULL,
  "at_ms" bigint(20) NOT NULL,
  PRIMARY KEY ("version")
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_nopad_bin;
CREATE TABLE "channel_breakers" (
  "journal_id" varchar(26) NOT NULL,
  "channel_id" varchar(26) NOT NULL,
  "model" varchar(256) NOT NULL,
  "fingerprint" varchar(64) NOT NULL,
  "reason" varchar(32) NOT NULL,
  "since_ms" bigint(20) NOT NULL,
  "until_ms" bigint(20) NOT NULL,
  PRIMARY KEY ("journal_id","channel_id","model","fingerprint")
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_nopad_bin;
CREATE TABLE "channel_keys" (
  "id" varchar(26) NOT NULL,
  "channel_id" varchar(26) NOT NULL,
  "position" bigint(20) NOT NULL,
  "cipher" text NOT NULL,
  "fingerprint" varchar(64) NOT NULL,
  PRIMARY KEY ("id"),
  KEY "channel_keys_channel" ("channel_id","position")
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_nopad_bin;
CREATE TABLE "channel_probes" (
  "channel" varchar(128) NOT NULL,
  "model" varchar(256) NOT NULL,
  "next_ms" bigint(20) NOT NULL,
  PRIMARY KEY ("channel","model")
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_nopad_bin;
CREATE TABLE "channel_sums" (
  "span" varchar(32) NOT NULL,
  "at_s" bigint(20) NOT NULL,
  "scope" varchar(32) NOT NULL,
  "name" varchar(128) NOT NULL,
  "model" varchar(256) NOT NULL,
  "ok" bigint(20) NOT NULL DEFAULT 0,
  "failed" bigint(20) NOT NULL DEFAULT 0,
  "output_tokens" bigint(20) NOT NULL DEFAULT 0,
  "generation_ms" bigint(20) NOT NULL DEFAULT 0,
  "first_byte_le_50" bigint(20) NOT NULL DEFAULT 0,
  "first_byte_le_100" bigint(20) NOT NULL DEFAULT 0,
  "first_byte_le_200" bigint(20) NOT NULL DEFAULT 0,
  "first_byte_le_400" bigint(20) NOT NULL DEFAULT 0,
  "first_byte_le_600" bigint(20) NOT NULL DEFAULT 0,
  "first_byte_le_800" bigint(20) NOT NULL DEFAULT 0,
  "first_byte_le_1200" bigint(20) NOT NULL DEFAULT 0,
  "first_byte_le_1600" bigint(20) NOT NULL DEFAULT 0,
  "first_byte_le_2400" bigint(20) NOT NULL DEFAULT 0,
  "first_byte_le_3200" bigint(20) NOT NULL DEFAULT 0,
  "first_byte_le_4800" bigint(20) NOT NULL DEFAULT 0,
  "first_byte_le_6400" bigint(20) NOT NULL DEFAULT 0,
  "first_byte_le_9600" bigint(20) NOT NULL DEFAULT 0,
  "first_byte_le_12800" bigint(20) NOT NULL DEFAULT 0,
  "first_byte_le_25600" bigint(20) NOT NULL DEFAULT 0,
  "first_byte_le_51200" bigint(20) NOT NULL DEFAULT 0,
  "first_byte_le_102400" bigint(20) NOT NULL DEFAULT 0,
  "first_byte_le_204800" bigint(20) NOT NULL DEFAULT 0,
  "first_byte_le_409600" bigint(20) NOT NULL DEFAULT 0,
  "first_byte_more" bigint(20) NOT NULL DEFAULT 0,
  "total_le_50" bigint(20) NOT NULL DEFAULT 0,
  "total_le_100" bigint(20) NOT NULL DEFAULT 0,
  "total_le_200" bigint(20) NOT NULL DEFAULT 0,
  "total_le_400" bigint(20) NOT NULL DEFAULT 0,
  "total_le_600" bigint(20) NOT NULL DEFAULT 0,
  "total_le_800" bigint(20) NOT NULL DEFAULT 0,
  "total_le_1200" bigint(20) NOT NULL DEFAULT 0,
  "total_le_1600" bigint(20) NOT NULL DEFAULT 0,
  "total_le_2400" bigint(20) NOT NULL DEFAULT 0,
  "total_le_3200" bigint(20) NOT NULL DEFAULT 0,
  "total_le_4800" bigint(20) NOT NULL DEFAULT 0,
  "total_le_6400" bigint(20) NOT NULL DEFAULT 0,
  "total_le_9600" bigint(20) NOT NULL DEFAULT 0,
  "total_le_12800" bigint(20) NOT NULL DEFAULT 0,
  "total_le_25600" bigint(20) NOT NULL DEFAULT 0,
  "total_le_51200" bigint(20) NOT NULL DEFAULT 0,
  "total_le_102400" bigint(20) NOT NULL DEFAULT 0,
  "total_le_204800" bigint(20) NOT NULL DEFAULT 0,
  "total_le_409600" bigint(20) NOT NULL DEFAULT 0,
  "total_more" bigint(20) NOT NULL DEFAULT 0,
  "last_error" varchar(64) NOT NULL DEFAULT '',
  "last_ok_ms" bigint(20) NOT NULL DEFAULT 0,
  "last_failed_ms" bigint(20) NOT NULL DEFAULT 0,
  PRIMARY KEY ("span","at_s","scope","name","model")
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_nopad_bin;
CREATE TABLE "channels" (
  "id" varchar(26) NOT NULL,
  "name" varchar(128) NOT NULL,
  "vendor" varchar(32) NOT NULL,
  "family" varchar(32) NOT NULL,
  "base_url" text NOT NULL,
  "groups" mediumtext NOT NULL,
  "models" mediumtext NOT NULL,
  "priority" bigint(20) NOT NULL DEFAULT 0,
  "weight" bigint(20) NOT NULL DEFAULT 1,
  "rpm" bigint(20) NOT NULL DEFAULT 0,
  "tpm" bigint(20) NOT NULL DEFAULT 0,
  "concurrency" bigint(20) NOT NULL DEFAULT 0,
  "enabled" smallint(6) NOT NULL DEFAULT 1,
  "key_rpm" bigint(20) NOT NULL DEFAULT 0,
  "key_tpm" bigint(20) NOT NULL DEFAULT 0,
  "key_concurrency" bigint(20) NOT NULL DEFAULT 0,
  "extra_headers" text DEFAULT NULL,
  "proxy" text DEFAULT NULL,
  "ca_file" text DEFAULT NULL,
  "draining" smallint(6) NOT NULL DEFAULT 0,
  "translate" smallint(6) NOT NULL DEFAULT 1,
  "options" text DEFAULT NULL,
  "shared_ids" text DEFAULT NULL,
  "proxy_guarded" smallint(6) NOT NULL DEFAULT 0,
  PRIMARY KEY ("id"),
  UNIQUE KEY "channels_name" ("name")
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_nopad_bin;
CREATE TABLE "codes" (
  "id" varchar(26) NOT NULL,
  "digest" binary(32) NOT NULL,
  "pepper_id" varchar(32) NOT NULL,
  "last_four" varchar(32) NOT NULL,
  "amount" bigint(20) NOT NULL,
  "expires_ms" bigint(20) DEFAULT NULL,
  "created_ms" bigint(20) NOT NULL,
  "disabled_ms" bigint(20) DEFAULT NULL,
  "redeemed_ms" bigint(20) DEFAULT NULL,
  "redeemed_by" varchar(26) DEFAULT NULL,
  PRIMARY KEY ("id"),
  UNIQUE KEY "codes_digest" ("digest")
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_nopad_bin;
CREATE TABLE "first_run_links" (
  "digest" binary(32) NOT NULL,
  "created_ms" bigint(20) NOT NULL,
  PRIMARY KEY ("digest")
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_nopad_bin;
CREATE TABLE "groups" (
  "id" varchar(26) NOT NULL,
  "name" varchar(128) NOT NULL,
  "multiplier_ppm" bigint(20) NOT NULL,
  "models" mediumtext NOT NULL,
  "entries" text NOT NULL,
  "rpm" bigint(20) NOT NULL DEFAULT 0,
  "tpm" bigint(20) NOT NULL DEFAULT 0,
  "concurrency" bigint(20) NOT NULL DEFAULT 0,
  "disabled" smallint(6) NOT NULL DEFAULT 0,
  "translate" smallint(6) NOT NULL DEFAULT 1,
  PRIMARY KEY ("id"),
  UNIQUE KEY "groups_name" ("name")
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_nopad_bin;
CREATE TABLE "hub_notices" (
  "id" varchar(26) NOT NULL,
  "text" text NOT NULL,
  "level" varchar(32) NOT NULL,
  "since_ms" bigint(20) NOT NULL,
  "until_ms" bigint(20) DEFAULT NULL,
  "created_ms" bigint(20) NOT NULL,
  "created_by" varchar(128) NOT NULL,
  PRIMARY KEY ("id")
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_nopad_bin;
CREATE TABLE "hub_sessions" (
  "digest" binary(32) NOT NULL,
  "id" varchar(26) NOT NULL,
  "user_id" varchar(26) NOT NULL,
  "created_ms" bigint(20) NOT NULL,
  "seen_ms" bigint(20) NOT NULL,
  "address" varchar(64) NOT NULL,
  "agent" varchar(255) NOT NULL,
  PRIMARY KEY ("digest"),
  UNIQUE KEY "hub_sessions_id" ("id"),
  KEY "hub_sessions_user_id" ("user_id")
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_nopad_bin;
CREATE TABLE "hub_values" (
  "name" varchar(32) NOT NULL,
  "value" text NOT NULL,
  PRIMARY KEY ("name")
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_nopad_bin;
CREATE TABLE "journals" (
  "id" varchar(26) NOT NULL,
  "node" varchar(128) NOT NULL,
  "offset" bigint(20) NOT NULL,
  "opened_ms" bigint(20) NOT NULL,
  "finished_ms" bigint(20) DEFAULT NULL,
  "seen_ms" bigint(20) DEFAULT NULL,
  "version" varchar(64) DEFAULT NULL,
  "lead_ms" bigint(20) DEFAULT NULL,
  "backlog_bytes" bigint(20) DEFAULT NULL,
  "not_ready" varchar(128) DEFAULT NULL,
  PRIMARY KEY ("id")
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_nopad_bin;
CREATE TABLE "key_secrets" (
  "digest" binary(32) NOT NULL,
  "key_id" varchar(26) NOT NULL,
  "pepper_id" varchar(32) NOT NULL,
  "valid_until_ms" bigint(20) DEFAULT NULL,
  PRIMARY KEY ("digest"),
  KEY "key_secrets_key" ("key_id")
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_nopad_bin;
CREATE TABLE "keys_aside" (
  "channel_id" varchar(26) NOT NULL,
  "fingerprint" varchar(64) NOT NULL,
  "since_ms" bigint(20) NOT NULL,
  "until_ms" bigint(20) NOT NULL,
  "times" bigint(20) NOT NULL,
  "reason" varchar(128) NOT NULL,
  PRIMARY KEY ("channel_id","fingerprint")
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_nopad_bin;
CREATE TABLE "leases" (
  "account" varchar(64) NOT NULL,
  "journal_id" varchar(26) NOT NULL,
  "amount" bigint(20) NOT NULL,
  "held" bigint(20) NOT NULL,
  "recall" smallint(6) NOT NULL DEFAULT 0,
  PRIMARY KEY ("account","journal_id"),
  KEY "leases_journal" ("journal_id","recall")
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_nopad_bin;
CREATE TABLE "ledger" (
  "id" varchar(26) NOT NULL,
  "user_id" varchar(26) NOT NULL,
  "kind" varchar(32) NOT NULL,
  "amount" bigint(20) NOT NULL,
  "balance_after" bigint(20) NOT NULL,
  "reference" varchar(255) DEFAULT NULL,
  "idempotency_id" varchar(255) DEFAULT NULL,
  "reason" text NOT NULL,
  "at_ms" bigint(20) NOT NULL,
  "day" int(11) DEFAULT NULL,
  PRIMARY KEY ("id"),
  UNIQUE KEY "ledger_idempotency" ("idempotency_id"),
  KEY "ledger_user" ("user_id","id")
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_nopad_bin;
CREATE TABLE "low_balances" (
  "user_id" varchar(26) NOT NULL,
  "below" bigint(20) NOT NULL,
  PRIMARY KEY ("user_id")
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_nopad_bin;
CREATE TABLE "models" (
  "id" varchar(26) NOT NULL,
  "name" varchar(128) NOT NULL,
  "context_tokens" bigint(20) DEFAULT NULL,
  "max_output_tokens" bigint(20) DEFAULT NULL,
  "disabled" smallint(6) NOT NULL DEFAULT 0,
  "created_ms" bigint(20) NOT NULL,
  PRIMARY KEY ("id"),
  UNIQUE KEY "models_name" ("name")
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_nopad_bin;
CREATE TABLE "nodes" (
  "name" varchar(128) NOT NULL,
  "seen_ms" bigint(20) NOT NULL,
  PRIMARY KEY ("name")
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_nopad_bin;
CREATE TABLE "one_time_codes" (
  "user_id" varchar(26) NOT NULL,
  "sealed" text NOT NULL,
  "last_step" bigint(20) NOT NULL,
  "confirmed_ms" bigint(20) DEFAULT NULL,
  "recovery" text NOT NULL,
  PRIMARY KEY ("user_id")
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_nopad_bin;
CREATE TABLE "openid_links" (
  "digest" binary(32) NOT NULL,
  "id" varchar(26) NOT NULL,
  "user_id" varchar(26) NOT NULL,
  "issuer" varchar(255) NOT NULL,
  "subject" varchar(255) NOT NULL,
  "created_ms" bigint(20) NOT NULL,
  "used_ms" bigint(20) DEFAULT NULL,
  PRIMARY KEY ("digest"),
  UNIQUE KEY "openid_links_id" ("id"),
  KEY "openid_links_user_id" ("user_id")
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_nopad_bin;
CREATE TABLE "plans" (
  "id" varchar(26) NOT NULL,
  "name" varchar(128) NOT NULL,
  "quota" bigint(20) NOT NULL,
  "window" varchar(32) NOT NULL,
  "days" bigint(20) NOT NULL,
  "disabled" smallint(6) NOT NULL DEFAULT 0,
  "created_ms" bigint(20) NOT NULL,
  PRIMARY KEY ("id"),
  UNIQUE KEY "plans_name" ("name")
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_nopad_bin;
CREATE TABLE "prices" (
  "model_id" varchar(26) NOT NULL,
  "effective_ms" bigint(20) NOT NULL,
  "input" bigint(20) NOT NULL,
  "output" bigint(20) NOT NULL,
  "cache_read" bigint(20) DEFAULT NULL,
  "cache_write" bigint(20) DEFAULT NULL,
  "cache_write_1h" bigint(20) DEFAULT NULL,
  "reasoning" bigint(20) DEFAULT NULL,
  "call" bigint(20) NOT NULL DEFAULT 0,
  PRIMARY KEY ("model_id","effective_ms")
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_nopad_bin;
CREATE TABLE "quotas" (
  "account" varchar(64) NOT NULL,
  "spent" bigint(20) NOT NULL,
  "ends_ms" bigint(20) DEFAULT NULL,
  PRIMARY KEY ("account"),
  KEY "quotas_ends" ("ends_ms")
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_nopad_bin;
CREATE TABLE "schema_lease" (
  "name" varchar(32) NOT NULL,
  "owner" varchar(32) NOT NULL,
  "until_s" bigint(20) NOT NULL,
  PRIMARY KEY ("name")
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_general_ci;
CREATE TABLE "schema_migrations" (
  "name" varchar(128) NOT NULL,
  "applied_ms" bigint(20) NOT NULL,
  PRIMARY KEY ("name")
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_general_ci;
CREATE TABLE "stored_responses" (
  "mark" binary(32) NOT NULL,
  "user_id" varchar(26) NOT NULL,
  "channel_id" varchar(26) NOT NULL,
  "fingerprint" varchar(64) NOT NULL,
  "expires_ms" bigint(20) NOT NULL,
  PRIMARY KEY ("mark","user_id"),
  KEY "stored_responses_expires" ("expires_ms")
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_nopad_bin;
CREATE TABLE "subscriptions" (
  "id" varchar(26) NOT NULL,
  "user_id" varchar(26) NOT NULL,
  "plan_id" varchar(26) NOT NULL,
  "starts_ms" bigint(20) NOT NULL,
  "expires_ms" bigint(20) NOT NULL,
  "disabled" smallint(6) NOT NULL DEFAULT 0,
  "created_ms" bigint(20) NOT NULL,
  PRIMARY KEY ("id"),
  UNIQUE KEY "subscriptions_user" ("user_id","plan_id"),
  KEY "subscriptions_plan" ("plan_id")
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_nopad_bin;
CREATE TABLE "upkeep" (
  "name" varchar(32) NOT NULL,
  "owner" varchar(26) NOT NULL,
  "node" varchar(128) NOT NULL,
  "until_ms" bigint(20) NOT NULL,
  "begun_ms" bigint(20) DEFAULT NULL,
  "ended_ms" bigint(20) DEFAULT NULL,
  "next_ms" bigint(20) NOT NULL,
  "removed" text DEFAULT NULL,
  "trouble" text DEFAULT NULL,
  PRIMARY KEY ("name")
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_nopad_bin;
CREATE TABLE "usage_by_channel" (
  "day" int(11) NOT NULL,
  "hour" smallint(6) NOT NULL,
  "channel" varchar(128) NOT NULL,
  "model" varchar(256) NOT NULL,
  "outcome" varchar(32) NOT NULL,
  "calls" bigint(20) NOT NULL DEFAULT 0,
  "input_tokens" bigint(20) NOT NULL DEFAULT 0,
  "output_tokens" bigint(20) NOT NULL DEFAULT 0,
  "cache_read_tokens" bigint(20) NOT NULL DEFAULT 0,
  "cache_write_tokens" bigint(20) NOT NULL DEFAULT 0,
  "cache_write_1h_tokens" bigint(20) NOT NULL DEFAULT 0,
  "reasoning_tokens" bigint(20) NOT NULL DEFAULT 0,
  "cost_nanos" bigint(20) NOT NULL DEFAULT 0,
  "endpoint" varchar(128) NOT NULL DEFAULT '',
  "error_code" varchar(64) NOT NULL DEFAULT '',
  "first_byte_le_50" int(11) NOT NULL DEFAULT 0,
  "first_byte_le_100" int(11) NOT NULL DEFAULT 0,
  "first_byte_le_200" int(11) NOT NULL DEFAULT 0,
  "first_byte_le_400" int(11) NOT NULL DEFAULT 0,
  "first_byte_le_600" int(11) NOT NULL DEFAULT 0,
  "first_byte_le_800" int(11) NOT NULL DEFAULT 0,
  "first_byte_le_1200" int(11) NOT NULL DEFAULT 0,
  "first_byte_le_1600" int(11) NOT NULL DEFAULT 0,
  "first_byte_le_2400" int(11) NOT NULL DEFAULT 0,
  "first_byte_le_3200" int(11) NOT NULL DEFAULT 0,
  "first_byte_le_4800" int(11) NOT NULL DEFAULT 0,
  "first_byte_le_6400" int(11) NOT NULL DEFAULT 0,
  "first_byte_le_9600" int(11) NOT NULL DEFAULT 0,
  "first_byte_le_12800" int(11) NOT NULL DEFAULT 0,
  "first_byte_le_25600" int(11) NOT NULL DEFAULT 0,
  "first_byte_le_51200" int(11) NOT NULL DEFAULT 0,
  "first_byte_le_102400" int(11) NOT NULL DEFAULT 0,
  "first_byte_le_204800" int(11) NOT NULL DEFAULT 0,
  "first_byte_le_409600" int(11) NOT NULL DEFAULT 0,
  "first_byte_more" int(11) NOT NULL DEFAULT 0,
  PRIMARY KEY ("day","hour","channel","model","outcome","endpoint","error_code")
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_nopad_bin;
CREATE TABLE "usage_by_day" (
  "day" int(11) NOT NULL,
  "channel" varchar(128) NOT NULL,
  "model" varchar(256) NOT NULL,
  "outcome" varchar(32) NOT NULL,
  "calls" bigint(20) NOT NULL DEFAULT 0,
  "input_tokens" bigint(20) NOT NULL DEFAULT 0,
  "output_tokens" bigint(20) NOT NULL DEFAULT 0,
  "cache_read_tokens" bigint(20) NOT NULL DEFAULT 0,
  "cache_write_tokens" bigint(20) NOT NULL DEFAULT 0,
  "cache_write_1h_tokens" bigint(20) NOT NULL DEFAULT 0,
  "reasoning_tokens" bigint(20) NOT NULL DEFAULT 0,
  "cost_nanos" bigint(20) NOT NULL DEFAULT 0,
  "endpoint" varchar(128) NOT NULL DEFAULT '',
  "error_code" varchar(64) NOT NULL DEFAULT '',
  "first_byte_le_50" int(11) NOT NULL DEFAULT 0,
  "first_byte_le_100" int(11) NOT NULL DEFAULT 0,
  "first_byte_le_200" int(11) NOT NULL DEFAULT 0,
  "first_byte_le_400" int(11) NOT NULL DEFAULT 0,
  "first_byte_le_600" int(11) NOT NULL DEFAULT 0,
  "first_byte_le_800" int(11) NOT NULL DEFAULT 0,
  "first_byte_le_1200" int(11) NOT NULL DEFAULT 0,
  "first_byte_le_1600" int(11) NOT NULL DEFAULT 0,
  "first_byte_le_2400" int(11) NOT NULL DEFAULT 0,
  "first_byte_le_3200" int(11) NOT NULL DEFAULT 0,
  "first_byte_le_4800" int(11) NOT NULL DEFAULT 0,
  "first_byte_le_6400" int(11) NOT NULL DEFAULT 0,
  "first_byte_le_9600" int(11) NOT NULL DEFAULT 0,
  "first_byte_le_12800" int(11) NOT NULL DEFAULT 0,
  "first_byte_le_25600" int(11) NOT NULL DEFAULT 0,
  "first_byte_le_51200" int(11) NOT NULL DEFAULT 0,
  "first_byte_le_102400" int(11) NOT NULL DEFAULT 0,
  "first_byte_le_204800" int(11) NOT NULL DEFAULT 0,
  "first_byte_le_409600" int(11) NOT NULL DEFAULT 0,
  "first_byte_more" int(11) NOT NULL DEFAULT 0,
  PRIMARY KEY ("day","channel","model","outcome","endpoint","error_code")
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_nopad_bin;
CREATE TABLE "usage_by_group" (
  "day" int(11) NOT NULL,
  "group" varchar(128) NOT NULL DEFAULT '',
  "model" varchar(256) NOT NULL,
  "outcome" varchar(32) NOT NULL,
  "endpoint" varchar(128) NOT NULL DEFAULT '',
  "error_code" varchar(64) NOT NULL DEFAULT '',
  "calls" bigint(20) NOT NULL DEFAULT 0,
  "input_tokens" bigint(20) NOT NULL DEFAULT 0,
  "output_tokens" bigint(20) NOT NULL DEFAULT 0,
  "cache_read_tokens" bigint(20) NOT NULL DEFAULT 0,
  "cache_write_tokens" bigint(20) NOT NULL DEFAULT 0,
  "cache_write_1h_tokens" bigint(20) NOT NULL DEFAULT 0,
  "reasoning_tokens" bigint(20) NOT NULL DEFAULT 0,
  "cost_nanos" bigint(20) NOT NULL DEFAULT 0,
  "first_byte_le_50" int(11) NOT NULL DEFAULT 0,
  "first_byte_le_100" int(11) NOT NULL DEFAULT 0,
  "first_byte_le_200" int(11) NOT NULL DEFAULT 0,
  "first_byte_le_400" int(11) NOT NULL DEFAULT 0,
  "first_byte_le_600" int(11) NOT NULL DEFAULT 0,
  "first_byte_le_800" int(11) NOT NULL DEFAULT 0,
  "first_byte_le_1200" int(11) NOT NULL DEFAULT 0,
  "first_byte_le_1600" int(11) NOT NULL DEFAULT 0,
  "first_byte_le_2400" int(11) NOT NULL DEFAULT 0,
  "first_byte_le_3200" int(11) NOT NULL DEFAULT 0,
  "first_byte_le_4800" int(11) NOT NULL DEFAULT 0,
  "first_byte_le_6400" int(11) NOT NULL DEFAULT 0,
  "first_byte_le_9600" int(11) NOT NULL DEFAULT 0,
  "first_byte_le_12800" int(11) NOT NULL DEFAULT 0,
  "first_byte_le_25600" int(11) NOT NULL DEFAULT 0,
  "first_byte_le_51200" int(11) NOT NULL DEFAULT 0,
  "first_byte_le_102400" int(11) NOT NULL DEFAULT 0,
  "first_byte_le_204800" int(11) NOT NULL DEFAULT 0,
  "first_byte_le_409600" int(11) NOT NULL DEFAULT 0,
  "first_byte_more" int(11) NOT NULL DEFAULT 0,
  PRIMARY KEY ("day","group","model","outcome","endpoint","error_code")
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_nopad_bin;
CREATE TABLE "usage_by_key" (
  "day" int(11) NOT NULL,
  "hour" smallint(6) NOT NULL,
  "key_id" varchar(26) NOT NULL,
  "user" varchar(128) NOT NULL,
  "model" varchar(256) NOT NULL,
  "outcome" varchar(32) NOT NULL,
  "calls" bigint(20) NOT NULL DEFAULT 0,
  "input_tokens" bigint(20) NOT NULL DEFAULT 0,
  "output_tokens" bigint(20) NOT NULL DEFAULT 0,
  "cache_read_tokens" bigint(20) NOT NULL DEFAULT 0,
  "cache_write_tokens" bigint(20) NOT NULL DEFAULT 0,
  "cache_write_1h_tokens" bigint(20) NOT NULL DEFAULT 0,
  "reasoning_tokens" bigint(20) NOT NULL DEFAULT 0,
  "cost_nanos" bigint(20) NOT NULL DEFAULT 0,
  "endpoint" varchar(128) NOT NULL DEFAULT '',
  "error_code" varchar(64) NOT NULL DEFAULT '',
  "group" varchar(128) NOT NULL DEFAULT '',
  "first_byte_le_50" int(11) NOT NULL DEFAULT 0,
  "first_byte_le_100" int(11) NOT NULL DEFAULT 0,
  "first_byte_le_200" int(11) NOT NULL DEFAULT 0,
  "first_byte_le_400" int(11) NOT NULL DEFAULT 0,
  "first_byte_le_600" int(11) NOT NULL DEFAULT 0,
  "first_byte_le_800" int(11) NOT NULL DEFAULT 0,
  "first_byte_le_1200" int(11) NOT NULL DEFAULT 0,
  "first_byte_le_1600" int(11) NOT NULL DEFAULT 0,
  "first_byte_le_2400" int(11) NOT NULL DEFAULT 0,
  "first_byte_le_3200" int(11) NOT NULL DEFAULT 0,
  "first_byte_le_4800" int(11) NOT NULL DEFAULT 0,
  "first_byte_le_6400" int(11) NOT NULL DEFAULT 0,
  "first_byte_le_9600" int(11) NOT NULL DEFAULT 0,
  "first_byte_le_12800" int(11) NOT NULL DEFAULT 0,
  "first_byte_le_25600" int(11) NOT NULL DEFAULT 0,
  "first_byte_le_51200" int(11) NOT NULL DEFAULT 0,
  "first_byte_le_102400" int(11) NOT NULL DEFAULT 0,
  "first_byte_le_204800" int(11) NOT NULL DEFAULT 0,
  "first_byte_le_409600" int(11) NOT NULL DEFAULT 0,
  "first_byte_more" int(11) NOT NULL DEFAULT 0,
  PRIMARY KEY ("day","hour","key_id","user","model","outcome","endpoint","error_code","group"),
  KEY "usage_by_key_key" ("key_id","day"),
  KEY "usage_by_key_user" ("user","day")
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_nopad_bin;
CREATE TABLE "usage_by_user" (
  "day" int(11) NOT NULL,
  "user" varchar(128) NOT NULL,
  "key_id" varchar(26) NOT NULL,
  "group" varchar(128) NOT NULL DEFAULT '',
  "outcome" varchar(32) NOT NULL,
  "calls" bigint(20) NOT NULL DEFAULT 0,
  "input_tokens" bigint(20) NOT NULL DEFAULT 0,
  "output_tokens" bigint(20) NOT NULL DEFAULT 0,
  "cache_read_tokens" bigint(20) NOT NULL DEFAULT 0,
  "cache_write_tokens" bigint(20) NOT NULL DEFAULT 0,
  "cache_write_1h_tokens" bigint(20) NOT NULL DEFAULT 0,
  "reasoning_tokens" bigint(20) NOT NULL DEFAULT 0,
  "cost_nanos" bigint(20) NOT NULL DEFAULT 0,
  "first_byte_le_50" int(11) NOT NULL DEFAULT 0,
  "first_byte_le_100" int(11) NOT NULL DEFAULT 0,
  "first_byte_le_200" int(11) NOT NULL DEFAULT 0,
  "first_byte_le_400" int(11) NOT NULL DEFAULT 0,
  "first_byte_le_600" int(11) NOT NULL DEFAULT 0,
  "first_byte_le_800" int(11) NOT NULL DEFAULT 0,
  "first_byte_le_1200" int(11) NOT NULL DEFAULT 0,
  "first_byte_le_1600" int(11) NOT NULL DEFAULT 0,
  "first_byte_le_2400" int(11) NOT NULL DEFAULT 0,
  "first_byte_le_3200" int(11) NOT NULL DEFAULT 0,
  "first_byte_le_4800" int(11) NOT NULL DEFAULT 0,
  "first_byte_le_6400" int(11) NOT NULL DEFAULT 0,
  "first_byte_le_9600" int(11) NOT NULL DEFAULT 0,
  "first_byte_le_12800" int(11) NOT NULL DEFAULT 0,
  "first_byte_le_25600" int(11) NOT NULL DEFAULT 0,
  "first_byte_le_51200" int(11) NOT NULL DEFAULT 0,
  "first_byte_le_102400" int(11) NOT NULL DEFAULT 0,
  "first_byte_le_204800" int(11) NOT NULL DEFAULT 0,
  "first_byte_le_409600" int(11) NOT NULL DEFAULT 0,
  "first_byte_more" int(11) NOT NULL DEFAULT 0,
  PRIMARY KEY ("day","user","key_id","group","outcome"),
  KEY "usage_by_user_user" ("user","day")
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_nopad_bin;
CREATE TABLE "usage_records" (
  "day" int(11) NOT NULL,
  "id" varchar(26) NOT NULL,
  "started_ms" bigint(20) NOT NULL,
  "recorded_ms" bigint(20) NOT NULL,
  "user_id" varchar(26) NOT NULL,
  "user" varchar(128) NOT NULL,
  "key_id" varchar(26) NOT NULL,
  "key_name" varchar(128) NOT NULL,
  "group" varchar(128) NOT NULL,
  "endpoint" text NOT NULL,
  "family" varchar(32) NOT NULL,
  "upstream_family" varchar(32) DEFAULT NULL,
  "model" text DEFAULT NULL,
  "upstream_model" text DEFAULT NULL,
  "channel" varchar(128) DEFAULT NULL,
  "stream" smallint(6) DEFAULT NULL,
  "status" int(11) DEFAULT NULL,
  "outcome" varchar(32) NOT NULL,
  "error_code" varchar(64) DEFAULT NULL,
  "error_message" text DEFAULT NULL,
  "input_tokens" bigint(20) NOT NULL DEFAULT 0,
  "output_tokens" bigint(20) NOT NULL DEFAULT 0,
  "cache_read_tokens" bigint(20) NOT NULL DEFAULT 0,
  "cache_write_tokens" bigint(20) NOT NULL DEFAULT 0,
  "cache_write_1h_tokens" bigint(20) NOT NULL DEFAULT 0,
  "reasoning_tokens" bigint(20) NOT NULL DEFAULT 0,
  "usage_source" varchar(32) NOT NULL,
  "prices" text DEFAULT NULL,
  "multiplier_ppm" bigint(20) DEFAULT NULL,
  "cost_nanos" bigint(20) NOT NULL,
  "billed_to" varchar(255) DEFAULT NULL,
  "charges" text NOT NULL,
  "reported_usage" mediumtext DEFAULT NULL,
  "ttft_ms" bigint(20) DEFAULT NULL,
  "duration_ms" bigint(20) DEFAULT NULL,
  "attempts" mediumtext NOT NULL,
  "client_request_id" varchar(255) DEFAULT NULL,
  "upstream_request_id" text DEFAULT NULL,
  "client_ip" varchar(64) DEFAULT NULL,
  "user_agent" text DEFAULT NULL,
  "node" varchar(128) DEFAULT NULL,
  "trace_id" varchar(32) DEFAULT NULL,
  PRIMARY KEY ("day","id"),
  KEY "usage_recorded" ("recorded_ms","id"),
  KEY "usage_caller" ("user","day","id","outcome","key_id"),
  KEY "usage_client_id" ("client_request_id"),
  KEY "usage_upstream_id" ("upstream_request_id"(64))
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_nopad_bin
 PARTITION BY RANGE ("day")
(PARTITION "pmax" VALUES LESS THAN MAXVALUE ENGINE = InnoDB);
CREATE TABLE "users" (
  "id" varchar(26) NOT NULL,
  "name" varchar(128) NOT NULL,
  "role" varchar(32) NOT NULL,
  "password_hash" varchar(255) DEFAULT NULL,
  "spend_order" varchar(32) NOT NULL,
  "disabled" smallint(6) NOT NULL DEFAULT 0,
  "created_ms" bigint(20) NOT NULL,
  "rpm" bigint(20) NOT NULL DEFAULT 0,
  "tpm" bigint(20) NOT NULL DEFAULT 0,
  "concurrency" bigint(20) NOT NULL DEFAULT 0,
  "groups" text DEFAULT NULL,
  PRIMARY KEY ("id"),
  UNIQUE KEY "users_name" ("name")
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_nopad_bin;
CREATE TABLE "versions" (
  "name" varchar(32) NOT NULL,
  "version" bigint(20) NOT NULL,
  PRIMARY KEY ("name")
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_nopad_bin;
CREATE TABLE "wallets" (
  "user_id" varchar(26) NOT NULL,
  "balance" bigint(20) NOT NULL,
  PRIMARY KEY ("user_id")
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_nopad_bin;
CREATE TABLE "wrong_paths" (
  "key_id" varchar(26) NOT NULL,
  "method" varchar(32) NOT NULL,
  "path" varchar(200) NOT NULL,
  "calls" bigint(20) NOT NULL,
  "first_ms" bigint(20) NOT NULL,
  "last_ms" bigint(20) NOT NULL,
  "address" varchar(64) NOT NULL,
  "agent" varchar(255) NOT NULL,
  "dismissed_ms" bigint(20) DEFAULT NULL,
  PRIMARY KEY ("key_id","method","path"),
  KEY "wrong_paths_last_ms" ("last_ms")
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_nopad_bin;
INSERT INTO "versions" VALUES ('changes', 0);
INSERT INTO "versions" VALUES ('usage_pruned', 0);
INSERT INTO "upkeep" VALUES ('upkeep', '', '', 0, NULL, NULL, 0, NULL, NULL);
INSERT INTO "schema_migrations" VALUES ('0001_core', 1795801549209);
INSERT INTO "schema_migrations" VALUES ('0002_usage_rollups', 1795801549257);
INSERT INTO "schema_migrations" VALUES ('0003_codes', 1795801549274);
INSERT INTO "schema_migrations" VALUES ('0004_accounts', 1795801549466);
INSERT INTO "schema_migrations" VALUES ('0005_usage_caller', 1795801549527);
INSERT INTO "schema_migrations" VALUES ('0006_stored_responses', 1795801549560);
INSERT INTO "schema_migrations" VALUES ('0007_limits', 1795801549671);
INSERT INTO "schema_migrations" VALUES ('0008_channels', 1795801549748);
INSERT INTO "schema_migrations" VALUES ('0009_channel_status', 1795801549901);
INSERT INTO "schema_migrations" VALUES ('0010_codes_disabled', 1795801550008);
INSERT INTO "schema_migrations" VALUES ('0011_translation', 1795801550205);
INSERT INTO "schema_migrations" VALUES ('0012_hub', 1795801550327);
INSERT INTO "schema_migrations" VALUES ('0013_hub_keys', 1795801550476);
INSERT INTO "schema_migrations" VALUES ('0014_usage_rollups', 1795801551114);
INSERT INTO "schema_migrations" VALUES ('0015_access', 1795801551335);
INSERT INTO "schema_migrations" VALUES ('0016_overview', 1795801551371);
INSERT INTO "schema_migrations" VALUES ('0017_notices', 1795801551521);
INSERT INTO "schema_migrations" VALUES ('0018_upkeep', 1795801551597);
INSERT INTO "schema_migrations" VALUES ('0019_trace_id', 1795801551742);
INSERT INTO "schema_migrations" VALUES ('0020_usage_by_user', 1795801551887);
INSERT INTO "schema_migrations" VALUES ('0021_shared_ids', 1795801551997);
INSERT INTO "schema_migrations" VALUES ('0022_guarded_proxy', 1795801552074);
INSERT INTO "schema_migrations" VALUES ('0023_processes', 1795801552171);
INSERT INTO "schema_lease" VALUES ('migrate', '', 0);
