package queues

import (
	"encoding/json"
	"slices"

	"github.com/reprise-go/reprise/internal/testserver/sqs/internal/api"
	"github.com/reprise-go/reprise/internal/testserver/sqs/internal/clock"
	"github.com/reprise-go/reprise/internal/testserver/sqs/internal/policy"
)

type permissionRequest struct {
	QueueURL string   `json:"QueueUrl"`
	Label    string   `json:"Label"`
	Accounts []string `json:"AWSAccountIds"`
	Actions  []string `json:"Actions"`
}

// grantable are the actions that AddPermission accepts.
var grantable = []string{
	"*", "SendMessage", "ReceiveMessage", "DeleteMessage", "ChangeMessageVisibility", "GetQueueAttributes", "GetQueueUrl",
	"ListDeadLetterSourceQueues", "PurgeQueue", "StartMessageMoveTask", "CancelMessageMoveTask", "ListMessageMoveTasks",
}

// The limits of a policy:
// https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/quotas-policies.html
const (
	maxStatements = 20
	maxActions    = 7
)

// addPermission implements AddPermission, which adds a statement to the queue's policy.
func (st *Store) addPermission(_ *api.Call, r *permissionRequest) (*empty, *api.Error) {
	now := st.Begin()
	defer st.End(now)
	q, err := st.queueByURLLocked(r.QueueURL)
	if err != nil {
		return nil, err
	}
	if err := r.check(); err != nil {
		return nil, err
	}
	p := policy.Policy{Version: "2008-10-17", ID: q.arn + "/SQSDefaultPolicy"}
	if q.policy != nil {
		p = *q.policy
	}
	if slices.ContainsFunc(p.Statement, r.isLabelled) {
		return nil, api.InvalidParameter("Value %s for parameter Label is invalid. Reason: Already exists.", r.Label)
	}
	if len(p.Statement) >= maxStatements || len(r.Actions) > maxActions {
		return nil, api.Failure("OverLimit", "A policy can have %d statements with %d actions each.", maxStatements, maxActions)
	}
	s := policy.Statement{Sid: r.Label, Effect: "Allow", Resource: policy.Texts{q.arn}}
	var principals policy.Texts
	for _, account := range r.Accounts {
		principals = append(principals, "arn:aws:iam::"+account+":root")
	}
	for _, action := range r.Actions {
		s.Action = append(s.Action, "SQS:"+action)
	}
	s.Principal, _ = json.Marshal(map[string]policy.Texts{"AWS": principals}) // strings
	p.Statement = append(slices.Clone(p.Statement), s)
	return &empty{}, st.setPolicyLocked(q, p, now)
}

// removePermission implements RemovePermission.
func (st *Store) removePermission(_ *api.Call, r *permissionRequest) (*empty, *api.Error) {
	now := st.Begin()
	defer st.End(now)
	q, err := st.queueByURLLocked(r.QueueURL)
	if err != nil {
		return nil, err
	}
	if q.policy == nil || !slices.ContainsFunc(q.policy.Statement, r.isLabelled) {
		return nil, api.InvalidParameter("Value %s for parameter Label is invalid. Reason: can't find label.", r.Label)
	}
	p := *q.policy
	p.Statement = slices.DeleteFunc(slices.Clone(p.Statement), r.isLabelled)
	return &empty{}, st.setPolicyLocked(q, p, now)
}

func (r *permissionRequest) isLabelled(s policy.Statement) bool { return s.Sid == r.Label }

func (r *permissionRequest) check() *api.Error {
	if !api.IsBatchID(r.Label) {
		return api.InvalidParameter("Value %s for parameter Label is invalid. Reason: Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length.", r.Label)
	}
	if len(r.Accounts) == 0 {
		return api.MissingParameter("PrincipalId")
	}
	if len(r.Actions) == 0 {
		return api.MissingParameter("Actions")
	}
	for _, a := range r.Actions {
		if !slices.Contains(grantable, a) {
			return api.InvalidParameter("Value SQS:%s for parameter ActionName is invalid. Reason: Only the queue owner is allowed to invoke this action.", a)
		}
	}
	return nil
}

// setPolicyLocked sets a queue's policy, or removes it if it has no statement.
func (st *Store) setPolicyLocked(q *queue, p policy.Policy, now clock.Instant) *api.Error {
	text := ""
	if len(p.Statement) > 0 {
		raw, err := json.Marshal(p)
		if err != nil {
			return api.Failure("InternalFailure", "%v", err)
		}
		text = string(raw)
	}
	return st.setAttributesLocked(q, map[string]string{"Policy": text}, now)
}
