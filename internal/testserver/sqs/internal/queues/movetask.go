package queues

import (
	"encoding/base64"
	"encoding/json"
	"slices"
	"time"

	"github.com/reprise-go/reprise/internal/testserver/sqs/internal/api"
	"github.com/reprise-go/reprise/internal/testserver/sqs/internal/clock"
	"github.com/reprise-go/reprise/internal/testserver/sqs/internal/content"
)

// A moveTask moves the messages of a dead-letter queue to another queue or back to their
// source queues.
type moveTask struct {
	id                  string
	source, destination string // ARNs; no destination: the source queues of the messages
	perSecond           int    // 0: no limit
	started             clock.Instant
	total, moved        int
	status, failure     string
	next                clock.Instant // when the next message is moved
	alarm               *time.Timer
}

const (
	taskRunning   = "RUNNING"
	taskCompleted = "COMPLETED"
	taskCancelled = "CANCELLED"
	taskFailed    = "FAILED"
)

type moveTaskRequest struct {
	Source      string  `json:"SourceArn"`
	Destination *string `json:"DestinationArn"`
	PerSecond   *int    `json:"MaxNumberOfMessagesPerSecond"`
	MaxResults  *int    `json:"MaxResults"`
	Handle      string  `json:"TaskHandle"`
}

type startTaskResponse struct {
	Handle string `json:"TaskHandle"`
}

// taskQueueLocked returns a queue that a move task names in a parameter.
func (st *Store) taskQueueLocked(arn, parameter string) (*queue, *api.Error) {
	if q := st.queueByARNLocked(arn); q != nil {
		return q, nil
	}
	return nil, api.Failure("ResourceNotFoundException", "The resource that you specified for the %s parameter doesn't exist.", parameter)
}

// startMessageMoveTask implements StartMessageMoveTask. The errors are those of LocalStack's
// tests/aws/services/sqs/test_sqs_move_task.py, recorded against AWS.
func (st *Store) startMessageMoveTask(_ *api.Call, r *moveTaskRequest) (*startTaskResponse, *api.Error) {
	now := st.Begin()
	defer st.End(now)
	source, err := st.taskQueueLocked(r.Source, "SourceArn")
	if err != nil {
		return nil, err
	}
	if !st.isDeadLetterQueueLocked(source) {
		return nil, api.InvalidParameter("Source queue must be configured as a Dead Letter Queue.")
	}
	t := &moveTask{id: content.NewID(), source: r.Source, started: now, next: now, status: taskRunning}
	if r.Destination != nil {
		destination, err := st.taskQueueLocked(*r.Destination, "DestinationArn")
		switch {
		case err != nil:
			return nil, err
		case destination == source:
			return nil, api.InvalidParameter("Source queue arn and destination queue arn cannot be the same.")
		case destination.fifo != source.fifo:
			return nil, api.InvalidParameter("Source queue and destination queue must be of the same type.")
		}
		t.destination = *r.Destination
	}
	if r.PerSecond != nil {
		if t.perSecond = *r.PerSecond; t.perSecond < 1 || t.perSecond > 500 {
			return nil, api.InvalidParameter("Value for parameter MaxNumberOfMessagesPerSecond is invalid. Reason: Must be between 1 and 500.")
		}
		t.next = now.Add(time.Second / time.Duration(t.perSecond))
	}
	for _, other := range st.tasks {
		if other.source == t.source && other.status == taskRunning {
			return nil, api.InvalidParameter("There is already a task running. Only one active task is allowed for a source queue arn at a given time.")
		}
	}
	source.settle(now)
	t.total = source.count[ready]
	st.tasks = append(st.tasks, t)
	st.logTaskLocked(t, now)
	st.armTaskLocked(t, now)
	return &startTaskResponse{t.handle()}, nil
}

// armTaskLocked sets the alarm for a task's next step.
func (st *Store) armTaskLocked(t *moveTask, now clock.Instant) {
	if t.alarm != nil {
		t.alarm.Stop()
		t.alarm = nil
	}
	if t.status != taskRunning || st.dead {
		return
	}
	t.alarm = time.AfterFunc(max(0, t.next.Sub(now)), func() {
		st.mu.Lock()
		defer st.mu.Unlock()
		if now := st.clock.Now(); !st.dead && t.status == taskRunning && t.next <= now {
			st.stepLocked(t, now)
			st.settleLocked(now)
		}
	})
}

// stepLocked moves the next message of a task, or all of them if it has no rate.
func (st *Store) stepLocked(t *moveTask, now clock.Instant) {
	for {
		source := st.queueByARNLocked(t.source)
		if source == nil {
			t.status, t.failure = taskFailed, "AWS.SimpleQueueService.NonExistentQueue"
			break
		}
		source.settle(now)
		g := source.nextGroup()
		if g == nil {
			t.status = taskCompleted
			break
		}
		m, _ := g.ready.Peek()
		to := t.destination
		if to == "" {
			to = m.source
		}
		destination := st.queueByARNLocked(to)
		if destination == nil {
			t.status, t.failure = taskFailed, "AWS.SimpleQueueService.NonExistentQueue"
			break
		}
		st.moveLocked(source, destination, m, now)
		t.moved++
		if t.perSecond > 0 {
			t.next = t.next.Add(time.Second / time.Duration(t.perSecond))
			break
		}
	}
	st.logTaskLocked(t, now)
	st.armTaskLocked(t, now)
}

// moveLocked puts a message of one queue into another as a new one, with a new id: see
// https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-configure-dead-letter-queue-redrive.html
func (st *Store) moveLocked(source, destination *queue, m *message, now clock.Instant) {
	source.remove(m)
	st.logRemoveLocked(source, m, now)
	moved := &message{
		Content: m.Content, group: m.group, deduplication: m.deduplication, sent: now, enqueued: now, due: now.Add(destination.delay),
	}
	moved.ID = content.NewID()
	st.serial++
	moved.serial, moved.order = st.serial, st.serial
	if destination.fifo {
		moved.sequence = sequenceNumber(moved.serial)
	}
	st.enterLocked(destination, moved, now)
}

type listTasksResponse struct {
	Results []taskResult `json:"Results"`
}

type taskResult struct {
	Moved       int    `json:"ApproximateNumberOfMessagesMoved"`
	ToMove      int    `json:"ApproximateNumberOfMessagesToMove"`
	Source      string `json:"SourceArn"`
	Destination string `json:"DestinationArn,omitempty"`
	Failure     string `json:"FailureReason,omitempty"`
	PerSecond   int    `json:"MaxNumberOfMessagesPerSecond,omitempty"`
	Started     int64  `json:"StartedTimestamp"`
	Status      string `json:"Status"`
	Handle      string `json:"TaskHandle,omitempty"`
}

// listMessageMoveTasks implements ListMessageMoveTasks.
func (st *Store) listMessageMoveTasks(_ *api.Call, r *moveTaskRequest) (*listTasksResponse, *api.Error) {
	now := st.Begin()
	defer st.End(now)
	if _, err := st.taskQueueLocked(r.Source, "SourceArn"); err != nil {
		return nil, err
	}
	limit := 1
	if r.MaxResults != nil {
		if limit = *r.MaxResults; limit < 1 || limit > 10 {
			return nil, api.InvalidParameter("Value for parameter MaxResults is invalid. Reason: MaxResults must be between 1 and 10.")
		}
	}
	response := &listTasksResponse{[]taskResult{}}
	for _, t := range slices.Backward(st.tasks) { // the newest first
		if t.source != r.Source || len(response.Results) == limit {
			continue
		}
		result := taskResult{
			Moved: t.moved, ToMove: t.total, Source: t.source, Destination: t.destination, Failure: t.failure, PerSecond: t.perSecond,
			Started: t.started.Milliseconds(), Status: t.status,
		}
		if t.status == taskRunning {
			result.Handle = t.handle()
		}
		response.Results = append(response.Results, result)
	}
	return response, nil
}

type cancelTaskResponse struct {
	Moved int `json:"ApproximateNumberOfMessagesMoved"`
}

// cancelMessageMoveTask implements CancelMessageMoveTask.
func (st *Store) cancelMessageMoveTask(_ *api.Call, r *moveTaskRequest) (*cancelTaskResponse, *api.Error) {
	now := st.Begin()
	defer st.End(now)
	id, source, ok := parseTaskHandle(r.Handle)
	if !ok {
		return nil, api.InvalidParameter("Value for parameter TaskHandle is invalid.")
	}
	if _, err := st.taskQueueLocked(source, "SourceArn"); err != nil {
		return nil, err
	}
	i := slices.IndexFunc(st.tasks, func(t *moveTask) bool { return t.id == id })
	if i < 0 {
		return nil, api.Failure("ResourceNotFoundException", "Task does not exist.")
	}
	t := st.tasks[i]
	if t.status != taskRunning {
		return nil, api.Failure("UnsupportedOperation", "Only active tasks can be cancelled.")
	}
	t.status = taskCancelled
	st.logTaskLocked(t, now)
	st.armTaskLocked(t, now)
	return &cancelTaskResponse{t.moved}, nil
}

type taskHandle struct {
	ID     string `json:"taskId"`
	Source string `json:"sourceArn"`
}

func (t *moveTask) handle() string {
	raw, _ := json.Marshal(taskHandle{t.id, t.source}) // strings
	return base64.StdEncoding.EncodeToString(raw)
}

func parseTaskHandle(text string) (id, source string, ok bool) {
	raw, err := base64.StdEncoding.DecodeString(text)
	var h taskHandle
	if err != nil || json.Unmarshal(raw, &h) != nil || h.ID == "" {
		return "", "", false
	}
	return h.ID, h.Source, true
}
