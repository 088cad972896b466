package queues

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/reprise-go/reprise/internal/testserver/sqs/internal/api"
	"github.com/reprise-go/reprise/internal/testserver/sqs/internal/clock"
)

type createQueueRequest struct {
	Name       string            `json:"QueueName"`
	Attributes map[string]string `json:"Attributes"`
	Tags       map[string]string `json:"tags"`
}

type queueURLResponse struct {
	QueueURL string `json:"QueueUrl"`
}

// recreateAfter is how long the name of a deleted queue cannot be used.
const recreateAfter = 60 * time.Second

// createQueue implements CreateQueue.
func (st *Store) createQueue(c *api.Call, r *createQueueRequest) (*queueURLResponse, *api.Error) {
	now := st.Begin()
	defer st.End(now)
	fifo, given, err := checkQueueName(r.Name, r.Attributes)
	if err != nil {
		return nil, err
	}
	response := &queueURLResponse{c.QueueURL(r.Name)}
	if q := st.queues[r.Name]; q != nil {
		for _, k := range slices.Sorted(maps.Keys(given)) {
			if err := checkAttribute(k, given[k], fifo); err != nil {
				return nil, err
			}
		}
		if k := q.differing(given); k != "" {
			return nil, api.Failure("QueueNameExists", "A queue already exists with the same name and a different value for attribute %s", k)
		}
		return response, nil
	}
	if at, ok := st.deleted[r.Name]; ok && at.Add(recreateAfter) > now {
		return nil, api.Failure("QueueDeletedRecently", "You must wait 60 seconds after deleting a queue before you can create another with the same name.")
	}
	delete(st.deleted, r.Name)
	attributes, s, err := st.changeAttributesLocked(r.Name, fifo, nil, given)
	if err != nil {
		return nil, err
	}
	st.lastQueue++
	q := newQueue(st.lastQueue, r.Name, st.QueueARN(r.Name), fifo)
	q.created, q.modified, q.attributes, q.settings = now, now, attributes, s
	maps.Copy(q.tags, r.Tags)
	st.queues[r.Name] = q
	st.logQueueLocked(q, now)
	return response, nil
}

// checkQueueName checks the name of a new queue, and returns the attributes without
// FifoQueue.
func checkQueueName(name string, attributes map[string]string) (fifo bool, given map[string]string, _ *api.Error) {
	given = map[string]string{}
	maps.Copy(given, attributes)
	base, suffixed := strings.CutSuffix(name, ".fifo")
	value, ok := attributes["FifoQueue"]
	switch {
	case ok && value != "true" && value != "false":
		return false, nil, invalidAttribute("FifoQueue", "")
	case value == "true":
		fifo = true
		delete(given, "FifoQueue")
	case ok && !suffixed: // a standard queue has no such attribute, not even false
		return false, nil, unknownAttribute("FifoQueue")
	}
	if fifo && (!suffixed || !isQueueName(base, 75)) {
		return false, nil, api.InvalidParameter("The name of a FIFO queue can only include alphanumeric characters, hyphens, or underscores, must end with .fifo suffix and be 1 to 80 in length.")
	}
	if !fifo && !isQueueName(name, 80) {
		return false, nil, api.InvalidParameter("Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length")
	}
	return fifo, given, nil
}

func isQueueName(s string, limit int) bool { return len(s) <= limit && api.IsBatchID(s) }

type queueRequest struct {
	QueueURL string `json:"QueueUrl"`
}

// deleteQueue implements DeleteQueue.
func (st *Store) deleteQueue(_ *api.Call, r *queueRequest) (*empty, *api.Error) {
	now := st.Begin()
	defer st.End(now)
	q, err := st.queueByURLLocked(r.QueueURL)
	if err != nil {
		return nil, err
	}
	st.dropQueueLocked(q, now)
	st.logDropQueueLocked(q, now)
	return &empty{}, nil
}

func (st *Store) dropQueueLocked(q *queue, now clock.Instant) {
	delete(st.queues, q.name)
	st.deleted[q.name] = now
	for _, p := range q.polls { // no more messages will arrive
		p.result <- nil
	}
	q.polls = nil
	if q.alarm != nil {
		q.alarm.Stop()
	}
}

type getQueueURLRequest struct {
	Name  string `json:"QueueName"`
	Owner string `json:"QueueOwnerAWSAccountId"`
}

// getQueueURL implements GetQueueUrl.
func (st *Store) getQueueURL(c *api.Call, r *getQueueURLRequest) (*queueURLResponse, *api.Error) {
	now := st.Begin()
	defer st.End(now)
	if st.queues[r.Name] == nil || r.Owner != "" && r.Owner != st.Account {
		return nil, queueDoesNotExist()
	}
	return &queueURLResponse{c.QueueURL(r.Name)}, nil
}

type listQueuesRequest struct {
	Prefix     string `json:"QueueNamePrefix"`
	QueueURL   string `json:"QueueUrl"` // of ListDeadLetterSourceQueues
	MaxResults *int   `json:"MaxResults"`
	NextToken  string `json:"NextToken"`
}

type listQueuesResponse struct {
	URLs      []string `json:"QueueUrls,omitempty"`
	NextToken string   `json:"NextToken,omitempty"`
}

// listQueues implements ListQueues.
func (st *Store) listQueues(c *api.Call, r *listQueuesRequest) (*listQueuesResponse, *api.Error) {
	now := st.Begin()
	defer st.End(now)
	var names []string
	for name := range st.queues {
		if strings.HasPrefix(name, r.Prefix) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	urls, token, err := page(c, names, r)
	return &listQueuesResponse{urls, token}, err
}

type listSourcesResponse struct {
	URLs      []string `json:"queueUrls"` // the service's own spelling
	NextToken string   `json:"NextToken,omitempty"`
}

// listDeadLetterSourceQueues implements ListDeadLetterSourceQueues.
func (st *Store) listDeadLetterSourceQueues(c *api.Call, r *listQueuesRequest) (*listSourcesResponse, *api.Error) {
	now := st.Begin()
	defer st.End(now)
	q, err := st.queueByURLLocked(r.QueueURL)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, source := range st.sourcesOfLocked(q) {
		names = append(names, source.name)
	}
	urls, token, err := page(c, names, r)
	return &listSourcesResponse{urls, token}, err
}

// page returns the URLs of the queues on the requested page. The names are sorted; a token is
// the last name of the previous page.
func page(c *api.Call, names []string, r *listQueuesRequest) (urls []string, token string, _ *api.Error) {
	limit := 1000
	if r.MaxResults != nil {
		if limit = *r.MaxResults; limit < 1 || limit > 1000 {
			return nil, "", api.InvalidParameter("Value %d for parameter MaxResults is invalid. Reason: MaxResults must be >= 1 and <= 1000.", limit)
		}
	}
	if r.NextToken != "" {
		last, ok := api.DecodeToken(r.NextToken)
		if !ok {
			return nil, "", api.InvalidParameter("Invalid or expired next token.")
		}
		i, found := slices.BinarySearch(names, last)
		if found {
			i++
		}
		names = names[i:]
	}
	if len(names) > limit {
		names = names[:limit]
		if r.MaxResults != nil { // else the rest is cut off
			token = api.EncodeToken(names[limit-1])
		}
	}
	urls = make([]string, len(names))
	for i, name := range names {
		urls[i] = c.QueueURL(name)
	}
	return urls, token, nil
}

type attributesRequest struct {
	QueueURL   string            `json:"QueueUrl"`
	Names      []string          `json:"AttributeNames"` // to get
	Attributes map[string]string `json:"Attributes"`     // to set
}

type attributesResponse struct {
	Attributes map[string]string `json:"Attributes,omitempty"`
}

// getQueueAttributes implements GetQueueAttributes.
func (st *Store) getQueueAttributes(_ *api.Call, r *attributesRequest) (*attributesResponse, *api.Error) {
	now := st.Begin()
	defer st.End(now)
	q, err := st.queueByURLLocked(r.QueueURL)
	if err != nil {
		return nil, err
	}
	q.settle(now)
	attributes, err := q.readAttributes(r.Names)
	return &attributesResponse{attributes}, err
}

// setQueueAttributes implements SetQueueAttributes. The change is effective at once.
func (st *Store) setQueueAttributes(_ *api.Call, r *attributesRequest) (*empty, *api.Error) {
	now := st.Begin()
	defer st.End(now)
	q, err := st.queueByURLLocked(r.QueueURL)
	if err != nil {
		return nil, err
	}
	if q.fifo && r.Attributes["FifoQueue"] == "true" { // changes nothing
		delete(r.Attributes, "FifoQueue")
	}
	if err := st.setAttributesLocked(q, r.Attributes, now); err != nil {
		return nil, err
	}
	return &empty{}, nil
}

func (st *Store) setAttributesLocked(q *queue, change map[string]string, now clock.Instant) *api.Error {
	attributes, s, err := st.changeAttributesLocked(q.name, q.fifo, q.attributes, change)
	if err != nil {
		return err
	}
	q.settle(now)
	st.adoptLocked(q, attributes, s, now)
	st.logQueueLocked(q, now)
	return nil
}

// adoptLocked makes new attributes effective. A FIFO queue's delay is retroactive, a standard
// queue's is not:
// https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-delay-queues.html
func (st *Store) adoptLocked(q *queue, attributes map[string]string, s settings, now clock.Instant) {
	changed := q.fifo && q.delay != s.delay
	q.attributes, q.settings, q.modified = attributes, s, now
	if changed {
		for _, m := range q.messages {
			if m.state == delayed {
				m.due = m.enqueued.Add(q.delay)
				q.timed.Fix(m.place)
			}
		}
	}
	q.settle(now)
	st.touchLocked(q)
}

// purgeEvery is the time during which another PurgeQueue is refused.
const purgeEvery = 60 * time.Second

// purgeQueue implements PurgeQueue. It removes all messages at once, while the service may
// take up to 60 seconds.
func (st *Store) purgeQueue(_ *api.Call, r *queueRequest) (*empty, *api.Error) {
	now := st.Begin()
	defer st.End(now)
	q, err := st.queueByURLLocked(r.QueueURL)
	if err != nil {
		return nil, err
	}
	if q.purged != 0 && q.purged.Add(purgeEvery) > now {
		return nil, api.Failure("PurgeQueueInProgress", "Only one PurgeQueue operation on %s is allowed every 60 seconds.", q.name)
	}
	q.purged = now
	q.clear()
	st.logPurgeLocked(q, now)
	return &empty{}, nil
}

type tagRequest struct {
	QueueURL string            `json:"QueueUrl"`
	Tags     map[string]string `json:"Tags"`
	Keys     []string          `json:"TagKeys"`
}

type tagResponse struct {
	Tags map[string]string `json:"Tags,omitempty"`
}

// tagQueue implements TagQueue.
func (st *Store) tagQueue(_ *api.Call, r *tagRequest) (*empty, *api.Error) {
	now := st.Begin()
	defer st.End(now)
	q, err := st.queueByURLLocked(r.QueueURL)
	if err != nil {
		return nil, err
	}
	if len(r.Tags) == 0 {
		return nil, api.MissingParameter("Tags")
	}
	for k, v := range r.Tags {
		if k == "" || len(k) > 128 || len(v) > 256 || strings.HasPrefix(strings.ToLower(k), "aws:") {
			return nil, api.InvalidParameter("Tag keys must have 1 to 128 characters and not begin with aws:, tag values at most 256 characters.")
		}
	}
	maps.Copy(q.tags, r.Tags)
	st.logQueueLocked(q, now)
	return &empty{}, nil
}

// untagQueue implements UntagQueue.
func (st *Store) untagQueue(_ *api.Call, r *tagRequest) (*empty, *api.Error) {
	now := st.Begin()
	defer st.End(now)
	q, err := st.queueByURLLocked(r.QueueURL)
	if err != nil {
		return nil, err
	}
	for _, k := range r.Keys {
		delete(q.tags, k)
	}
	st.logQueueLocked(q, now)
	return &empty{}, nil
}

// listQueueTags implements ListQueueTags.
func (st *Store) listQueueTags(_ *api.Call, r *queueRequest) (*tagResponse, *api.Error) {
	now := st.Begin()
	defer st.End(now)
	q, err := st.queueByURLLocked(r.QueueURL)
	if err != nil {
		return nil, err
	}
	return &tagResponse{maps.Clone(q.tags)}, nil
}
