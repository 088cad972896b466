package sqlserver

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/reprise-go/reprise/transport"
)

// dialect is what differs between the database products: names, the texts of
// statements, and what the numbers of errors mean. All that decides something is
// in the engine, which is the same for all.
type dialect interface {
	// product is the database product's name for messages.
	product() string

	// defaultSchema is where tables are if Config.Schema says nothing.
	defaultSchema() string

	// length is how many characters a text has for the type of columns of names.
	length(text string) int

	// table reads the name or the address of a queue.
	table(queue string, in place) (table, error)

	// queue writes the statements on a queue's table.
	queue(t table) *queueTexts

	// subscriptions and delayed write those on the tables of these names.
	subscriptions(t table) *subscriptionTexts
	delayed(t table) *delayedTexts

	// claim leases up to n messages that became available at a time or later, take and
	// takeForeign remove them, the latter from a table made by NServiceBus. They return
	// the columns of record. Where headers, body or last error of a message have more bytes
	// than whole, claim returns an empty one, and as one more column the size of all three,
	// which is 0 for a message that is whole. n is one of batchSizes.
	// The number is that of the process, see presence.
	claim(t *queueTexts, n int, lease time.Duration, from time.Time, whole int64, number int32) *statement
	take(t *queueTexts, n int, from time.Time) *statement
	takeForeign(t *queueTexts, n int) *statement

	// insert returns the statements that add messages to a queue's table. Where
	// foreign, it is one made by NServiceBus, and no message has a delay.
	insert(t *queueTexts, messages []outgoing, foreign bool) []*statement

	// insertDelayed adds messages to the table of delayed messages.
	insertDelayed(t *delayedTexts, messages []outgoing) []*statement

	// list turns columns of equal length, each a slice, into the arguments of a
	// statement that works on several rows.
	list(columns ...any) []any

	// savepoint marks a state of the transaction that rollbackTo returns to.
	savepoint(name string) *statement
	rollbackTo(name string) *statement

	// intact fails where what a handler did in the transaction cannot be committed.
	// It runs before anything else does after the handler.
	intact() *statement

	// columns returns a statement with a row (name, type) for each column of a
	// table, and without rows if there is no such table.
	columns(t table) *statement

	// wanted returns the columns of a queue's table, of Reprise's or NServiceBus's
	// making, and the statements that create it.
	wanted(t table, foreign bool) []column
	createQueue(t table, foreign bool) []string
	createSubscriptions(t table) []string
	createDelayed(t table) []string

	// notifyTrigger creates the trigger by which rows of senders that do not notify wake
	// receivers, if the table has none. hasNotifyTrigger has a row if it has one. Both
	// are nil where there is no such trigger.
	notifyTrigger(t table) *statement
	hasNotifyTrigger(t table) *statement

	// lockSchema lets one transaction at a time create tables.
	lockSchema() *statement

	// unless says what else it may be, where a table does not seem to exist.
	unless() string

	// seeing are the rights that it takes to learn whether a table exists, receiving and
	// sending those on the table that a queue's receivers and senders need in any case.
	seeing(t table) []right
	receiving(t table) []right
	sending(t table, foreign bool) []right

	// missing returns a statement with a row (role, index, sequence) for each of these
	// rights that the role of the session lacks, and grantable what the right is on. Both
	// are written as in GRANT.
	missing(needed []right) *statement
	grantable(r right) string

	// classify says what an error of the client library means.
	classify(err error) fault
}

// batchSizes are how many messages a statement fetches at most. They are few, so that
// there are few statements: where the limit is an argument, PostgreSQL makes a new
// plan each time, which takes longer than to fetch one message.
var batchSizes = []int{1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512}

// batchSize returns the largest of them that is not above n.
func batchSize(n int) int {
	i, found := slices.BinarySearch(batchSizes, n)
	if !found {
		i--
	}
	return batchSizes[max(i, 0)]
}

// place is where tables are unless a name says otherwise.
type place struct{ catalog, schema string }

// table is the table of a queue, or another one.
type table struct {
	place
	name    string
	quoted  string // as statements name it
	address string // as headers name it, and NServiceBus too
}

// column is one of a table. The kind is its type, or several: "integer or bigint".
type column struct{ name, kind string }

// queueTexts are the statements on the table of one queue. Times are the
// server's, durations microseconds, and lists what dialect.list makes of columns.
type queueTexts struct {
	table table

	// claim, take and takeForeign are for the dialect's methods of these names.
	claim, take, takeOne, takeForeign, takeOneForeign string

	// These settle leased messages, a list of (seq, claims). They return the seq of
	// those whose lease still held. abandon has the errors as a third column; renew
	// has the duration of the new lease before the list.
	complete, abandon, release, renew string

	// leased returns the seq of one leased message (seq 1, claims 2), if the lease holds, and fence
	// removes it. Where the lease does not hold, fence fails: what is sent together with it is not
	// carried out.
	leased, fence string

	// orphans releases the messages from the head of the queue that processes have leased which are
	// neither among these (1) nor there now. It returns their due.
	orphans string

	// contents returns the seq, headers, body and last error of claimed messages, a list
	// as above. begin is renew, also for a lease that has ended, as long as no other
	// receiver has claimed the message.
	contents, begin string

	// insert and insertAll are for the dialect's method insert: messages that neither
	// wait nor expire.
	insert, insertAll string

	// giveBack, recount and retake are of the dialect whose messages are held in transactions in
	// tables of Reprise's making.

	// giveBack adds a message that was removed: the columns of record in their order
	// without expired.
	giveBack string

	// recount raises the count of one message (seq 1, claims 2), which no receiver has: its
	// deliveries (3), claims (4) and error (5). It returns its seq.
	recount string

	// retake removes one message (seq 1) if this is the same delivery of it (2, and claims
	// 3), and no receiver has it. It returns its seq. retakeForeign does so by its
	// id and seq.
	retake, retakeForeign string

	// purge removes some of the messages that could be delivered now, as many as a
	// transaction can bear; purgeForeign does so in a table made by NServiceBus.
	purge, purgeForeign string

	// next returns in how many microseconds the next message that nobody has becomes
	// available, 0 or less for now; no row, or NULL: there is none. nextForeign is the
	// same for a table made by NServiceBus, in which nothing is delayed.
	next, nextForeign string
}

// subscriptionTexts are the statements on the table of subscriptions.
type subscriptionTexts struct {
	table table

	subscribers string // the addresses of the queues subscribed to a topic (1)
	subscribed  string // the topics of an endpoint (1) with a queue address (2)
	subscribe   string // queue address (1), endpoint (2), topic (3)
	unsubscribe string // endpoint (1), topic (2)
}

// delayedTexts are the statements on the table of messages that wait for queues
// made by NServiceBus.
type delayedTexts struct {
	table table

	// take removes up to so many (1) messages that are due, and returns the columns
	// of waiting.
	take string
	// forward adds one to its queue: expires, headers, body. Its text is about the
	// queue's table.
	forward func(t table) string
	// postpone makes a message (1) that was tried so often (4) due in a duration (2),
	// because of an error (3), and notes how often it has been tried now (5). remove
	// removes a message (1) that was tried so often (2). Both return its seq.
	postpone, remove string
	// next is as that of queueTexts.
	next string
}

// record is a message as it is in a queue's table.
type record struct {
	id         string
	seq        int64
	headers    text
	body       []byte
	due        time.Time
	deliveries int    // this one included
	claims     int    // fences off holders whose lease has ended
	expires    string // as giveBack takes it, or ""
	expired    bool
	lastError  string
	size       int64 // of headers, body and last error, where a claim does not return all
}

// nextClaim is the number of the next lease, as the statements count it.
func (r *record) nextClaim() int { return r.claims%math.MaxInt32 + 1 }

// text is a column that is read into the same buffer row after row.
type text []byte

// ScanBytes implements pgtype.BytesScanner.
func (t *text) ScanBytes(v []byte) error {
	*t = append((*t)[:0], v...)
	return nil
}

// Scan implements sql.Scanner.
func (t *text) Scan(value any) error {
	switch v := value.(type) {
	case string:
		*t = append((*t)[:0], v...)
	case []byte:
		*t = append((*t)[:0], v...)
	default:
		return fmt.Errorf("a column of text has a value of type %T", value)
	}
	return nil
}

// columns returns pointers to the fields, in the order of the statements'
// columns.
func (r *record) columns() []any {
	return []any{&r.id, &r.seq, &r.headers, &r.body, &r.due, &r.deliveries, &r.claims, &r.expires, &r.expired, &r.lastError}
}

// waiting is a message in the table of delayed messages.
type waiting struct {
	seq         int64
	destination string
	expires     string
	headers     string
	body        []byte
	tries       int // that failed
}

func (w *waiting) columns() []any {
	return []any{&w.seq, &w.destination, &w.expires, &w.headers, &w.body, &w.tries}
}

// outgoing is a message as it goes into a table.
type outgoing struct {
	destination string // of one that waits in the table of delayed messages
	headers     string
	body        []byte
	delay       time.Duration
	ttl         time.Duration // 0: it does not expire
}

// fault is what an error means to the engine.
type fault int

const (
	// faultStatement: the server refused the statement, and nothing was done.
	faultStatement fault = iota
	// faultOutage: the connection or the server is gone; whether the statement was
	// carried out is unknown.
	faultOutage
	// faultUnreached: as faultOutage, but the statement was certainly not carried
	// out.
	faultUnreached
	// faultBusy: nothing was done, and the same may well succeed later: a deadlock, a
	// lock or statement timeout, a full disk.
	faultBusy
	// faultConflict: as faultBusy, but it may succeed at once: the server could not put
	// it in order with what others did at the same time.
	faultConflict
	// faultReadOnly: nothing was done, because the server is a standby, or has become
	// one.
	faultReadOnly
	// faultNoTable: a table does not exist.
	faultNoTable
	// faultRefused: credentials, rights or the database itself; waiting does not help.
	faultRefused
)

// fault says what an error means. What this package found itself wrong, with a table for
// example, is permanent.
func (t *Transport) fault(err error) fault {
	if transport.IsPermanent(err) {
		return faultStatement
	}
	return t.dialect.classify(err)
}

// transient reports whether a retry may help.
func (f fault) transient() bool {
	switch f {
	case faultOutage, faultUnreached, faultBusy, faultConflict, faultReadOnly:
		return true
	default:
		return false
	}
}
