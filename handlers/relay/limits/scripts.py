"""The scripts that Redis runs for limits: the buckets and slots of cells.py, by the server's clock.

A subject is a hash: `r` and `t`, the microsecond at which its bucket of requests and of tokens is
full again, and the number of running calls by worker id. A worker's calls count while its liveness
key exists, which the worker renews (ALIVE_MS). Numbers are doubles, exact to 2^53: enough for
microseconds since 1970.
"""

ALIVE_MS = 10_000  # for which a dead worker's slots stay taken
_IDLE_MS = 86_400_000  # a subject without calls for this long is forgotten

_HEAD = f"""
local MINUTE, DEBT = 60000000, 3600000000
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]

local function expire(key) redis.call('PEXPIRE', key, {_IDLE_MS}) end
"""

_STATES = (
    _HEAD
    + """
local worker = ARGV[1]
local alive, states = {}, {}

local function running(counts)
  local sum = 0
  for id, count in pairs(counts) do
    if alive[id] == nil then
      alive[id] = id == worker or redis.call('EXISTS', KEYS[1] .. id) == 1
    end
    if alive[id] then sum = sum + count end
  end
  return sum
end

local function state_of(key)
  if states[key] == nil then
    local state, fields = {r = 0, t = 0, counts = {}}, redis.call('HGETALL', key)
    for at = 1, #fields, 2 do
      local name, value = fields[at], tonumber(fields[at + 1])
      if name == 'r' or name == 't' then state[name] = math.max(0, value - now)
      else state.counts[name] = value end
    end
    states[key] = state
  end
  return states[key]
end
"""
)

ENTER = (
    _STATES
    + """
-- ARGV: worker, tokens, least, callers, places; of each caller rpm, tpm, concurrency; of each place
-- the number of its subjects, of each of them the position of its key, rpm, tpm, concurrency.
-- KEYS: prefix of workers' keys, then subjects.
-- Returns {1, place, of each subject requests, tokens, reserved}; where a caller is at a limit
-- {0, subject, kind, wait, requests, tokens}; where all places are {2, then of each {subject, kind,
-- wait}}.
local tokens, least = tonumber(ARGV[2]), tonumber(ARGV[3])
local callers, places = tonumber(ARGV[4]), tonumber(ARGV[5])

local function judge(key, rpm, tpm, concurrency)
  local state, kind, wait, each, reserved = state_of(key), nil, 0, 0, 0
  if concurrency > 0 and running(state.counts) >= concurrency then kind = 'calls' end
  if rpm > 0 then
    each = math.ceil(MINUTE / rpm)
    local over = state.r + each - each * rpm
    if over > 0 then kind, wait = 'requests', over end
  end
  if tpm > 0 and tokens > 0 then
    reserved = math.floor(tokens * MINUTE / tpm)
    local room = MINUTE - state.t
    if reserved > room then
      local over = math.min(math.floor(least * MINUTE / tpm), reserved, MINUTE) - room
      if over > wait then kind, wait = 'tokens', over end
      reserved = room
    end
  end
  return {key = key, kind = kind, wait = wait, r = state.r, t = state.t, each = each,
          reserved = reserved, rpm = rpm, concurrency = concurrency}
end

local function commit(row, reply)
  if row.concurrency > 0 then redis.call('HINCRBY', row.key, worker, 1) end
  local requests, full = row.r + row.each, row.t + row.reserved
  if row.rpm > 0 then redis.call('HSET', row.key, 'r', string.format('%.0f', now + requests)) end
  if row.reserved > 0 then redis.call('HSET', row.key, 't', string.format('%.0f', now + full)) end
  expire(row.key)
  for _, value in ipairs({requests, full, row.reserved}) do reply[#reply + 1] = value end
end

local at, rows, worst = 6, {}, nil
for number = 1, callers do
  local rpm, tpm = tonumber(ARGV[at]), tonumber(ARGV[at + 1])
  local row = judge(KEYS[number + 1], rpm, tpm, tonumber(ARGV[at + 2]))
  row.number, at = number, at + 3
  rows[number] = row
  if row.kind and (worst == nil or row.wait > worst.wait) then worst = row end
end
if worst then return {0, worst.number, worst.kind, worst.wait, worst.r, worst.t} end
local full = {2}
for place = 1, math.max(1, places) do
  local chosen, refusal = {}, nil
  for number = 1, places > 0 and tonumber(ARGV[at]) or 0 do
    local key = KEYS[tonumber(ARGV[at + 1])]
    local row = judge(key, tonumber(ARGV[at + 2]), tonumber(ARGV[at + 3]), tonumber(ARGV[at + 4]))
    row.number, at = number, at + 4
    chosen[number] = row
    if row.kind and (refusal == nil or row.wait > refusal.wait) then refusal = row end
  end
  at = at + 1
  if refusal == nil then
    local reply = {1, place}
    for _, row in ipairs(rows) do commit(row, reply) end
    for _, row in ipairs(chosen) do commit(row, reply) end
    return reply
  end
  full[#full + 1] = {refusal.number, refusal.kind, refusal.wait}
end
return full
"""
)

LEAVE = (
    _HEAD
    + """
-- ARGV: worker, tokens used (-1: as if the call had never come); of each subject rpm, tpm,
-- concurrency, what it reserved. KEYS: subjects.
local worker, used = ARGV[1], tonumber(ARGV[2])
for number, key in ipairs(KEYS) do
  local at = 4 * number - 1
  local rpm, tpm = tonumber(ARGV[at]), tonumber(ARGV[at + 1])
  local concurrency, reserved = tonumber(ARGV[at + 2]), tonumber(ARGV[at + 3])
  if concurrency > 0 and redis.call('HINCRBY', key, worker, -1) <= 0 then
    redis.call('HDEL', key, worker)
  end
  if rpm > 0 and used < 0 then
    local full = tonumber(redis.call('HGET', key, 'r') or now)
    redis.call('HSET', key, 'r', string.format('%.0f', full - math.ceil(MINUTE / rpm)))
  end
  if tpm > 0 then
    local full = tonumber(redis.call('HGET', key, 't') or 0)
    local more = math.floor(math.max(0, used) * MINUTE / tpm) - reserved
    if more > 0 then full = math.min(math.max(full, now), now + DEBT - more) end
    redis.call('HSET', key, 't', string.format('%.0f', full + more))
  end
  expire(key)
end
return 0
"""
)

OWED = (
    _HEAD
    + """
-- ARGV: of each subject the time by which its buckets of requests and of tokens are full later, for
-- calls that were counted elsewhere. KEYS: subjects.
for number, key in ipairs(KEYS) do
  for at, field in ipairs({'r', 't'}) do
    local more = tonumber(ARGV[2 * number - 2 + at])
    if more > 0 then
      local full = math.max(now, tonumber(redis.call('HGET', key, field) or 0))
      redis.call('HSET', key, field, string.format('%.0f', math.min(full + more, now + DEBT)))
      expire(key)
    end
  end
end
return 0
"""
)

STATE = (
    _STATES
    + """
-- ARGV: worker. KEYS: prefix of workers' keys, the subject.
local state = state_of(KEYS[2])
return {state.r, state.t, running(state.counts)}
"""
)
