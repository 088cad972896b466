package sqlserver_test

import (
	"testing"

	"github.com/reprise-go/reprise/internal/testserver/postgres"
)

// The database's default isolation is stricter than what the queues need: that neither
// slows them down nor looks like an outage.
func TestSession_StricterIsolationByDefault(t *testing.T) {
	notInShortRuns(t)
	t.Parallel()
	for _, level := range []string{"repeatable read", "serializable"} {
		for _, mode := range bothModes {
			t.Run(level+"/"+mode.String(), func(t *testing.T) {
				t.Parallel()
				const messages = 1000
				e := newBusiness(t, brokerOn(t, server), mode)
				e.set("default_transaction_isolation", level)
				e.config.Concurrency = 8
				e.order(messages)
				e.run()
				e.awaitDone()
				e.checkDone(messages)
				e.checkAttempt(1)
				e.checkNoOutage()
			})
		}
	}
}

// A statement that the server cannot put in order with what others do at the same time
// is tried again at once. That is no outage, and no failure of the message.
func TestSession_SerializationFailureIsRetried(t *testing.T) {
	notInShortRuns(t)
	t.Parallel()
	for _, mode := range bothModes {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			const messages = 5
			e := newBusiness(t, brokerOn(t, server), mode)
			e.exec(`create sequence conflicts`) // which no rollback sets back
			e.exec(`grant all on sequence conflicts to ` + postgres.User)
			e.exec(`create function conflict() returns trigger language plpgsql as $$
begin
	if nextval('conflicts') <= 5 then
		raise exception 'could not serialize access' using errcode = 'serialization_failure';
	end if;
	return case tg_op when 'DELETE' then old else new end;
end $$`)
			e.exec(`create trigger conflict before update or delete on ` + inputQueue + ` for each row execute function conflict()`)
			e.order(messages)
			e.run()
			e.awaitDone()
			e.checkDone(messages)
			e.checkAttempt(1)
			e.checkNoOutage()
		})
	}
}
