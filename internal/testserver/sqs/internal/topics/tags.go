package topics

import (
	"encoding/json"
	"maps"
	"slices"

	"github.com/reprise-go/reprise/internal/testserver/sqs/internal/api"
	"github.com/reprise-go/reprise/internal/testserver/sqs/internal/clock"
	"github.com/reprise-go/reprise/internal/testserver/sqs/internal/policy"
)

type tagMember struct {
	Key, Value string
}

type tagsResult struct {
	Tags []tagMember `xml:"Tags>member"`
}

// maxTags is the maximum number of tags of a topic.
const maxTags = 50

// resourceLocked returns the topic whose tags a request is about.
func (st *Store) resourceLocked(f api.Form, now clock.Instant) (*topic, *api.Error) {
	t := st.topicLocked(f.Get("ResourceArn"), now)
	if t == nil {
		return nil, api.SNSFailure("ResourceNotFound", 404, "Resource does not exist")
	}
	return t, nil
}

// tagResource implements TagResource.
func (st *Store) tagResource(_ *api.Call, f api.Form) (api.AnswerXML, *api.Error) {
	now := st.queues.Begin()
	defer st.queues.End(now)
	t, err := st.resourceLocked(f, now)
	if err != nil {
		return nil, err
	}
	tags := map[string]string{}
	f.Each("Tags.member", func(p string) {
		key := f.Get(p + ".Key")
		if _, repeated := tags[key]; repeated {
			err = api.InvalidSNSParameter("Duplicated keys are not allowed.")
		}
		tags[key] = f.Get(p + ".Value")
	})
	if err != nil {
		return nil, err
	}
	all := map[string]string{}
	for _, m := range []map[string]string{t.tags, tags} {
		maps.Copy(all, m)
	}
	if len(all) > maxTags {
		return nil, api.SNSFailure("TagLimitExceeded", 400, "Could not complete request: tag quota of per resource exceeded")
	}
	t.tags = all
	st.logTopicLocked(t, now)
	return struct{}{}, nil
}

// untagResource implements UntagResource.
func (st *Store) untagResource(_ *api.Call, f api.Form) (api.AnswerXML, *api.Error) {
	now := st.queues.Begin()
	defer st.queues.End(now)
	t, err := st.resourceLocked(f, now)
	if err != nil {
		return nil, err
	}
	f.Each("TagKeys.member", func(p string) { delete(t.tags, f.Get(p)) })
	st.logTopicLocked(t, now)
	return struct{}{}, nil
}

// listTagsForResource implements ListTagsForResource.
func (st *Store) listTagsForResource(_ *api.Call, f api.Form) (api.AnswerXML, *api.Error) {
	now := st.queues.Begin()
	defer st.queues.End(now)
	t, err := st.resourceLocked(f, now)
	if err != nil {
		return nil, err
	}
	result := &tagsResult{}
	for _, k := range slices.Sorted(maps.Keys(t.tags)) {
		result.Tags = append(result.Tags, tagMember{k, t.tags[k]})
	}
	return result, nil
}

// addTopicPermission implements AddPermission of SNS.
func (st *Store) addTopicPermission(_ *api.Call, f api.Form) (api.AnswerXML, *api.Error) {
	return st.changeTopicPolicy(f, func(t *topic, p *policy.Policy) *api.Error {
		s := policy.Statement{Sid: f.Get("Label"), Effect: "Allow", Resource: policy.Texts{t.arn}}
		if slices.ContainsFunc(p.Statement, func(other policy.Statement) bool { return other.Sid == s.Sid }) {
			return api.InvalidSNSParameter("Statement already exists")
		}
		var principals policy.Texts
		f.Each("AWSAccountId.member", func(prefix string) { principals = append(principals, "arn:aws:iam::"+f.Get(prefix)+":root") })
		f.Each("ActionName.member", func(prefix string) { s.Action = append(s.Action, "SNS:"+f.Get(prefix)) })
		s.Principal, _ = json.Marshal(map[string]policy.Texts{"AWS": principals}) // strings
		p.Statement = append(p.Statement, s)
		return nil
	})
}

// removeTopicPermission implements RemovePermission of SNS.
func (st *Store) removeTopicPermission(_ *api.Call, f api.Form) (api.AnswerXML, *api.Error) {
	return st.changeTopicPolicy(f, func(_ *topic, p *policy.Policy) *api.Error {
		p.Statement = slices.DeleteFunc(p.Statement, func(s policy.Statement) bool { return s.Sid == f.Get("Label") })
		return nil
	})
}

func (st *Store) changeTopicPolicy(f api.Form, change func(*topic, *policy.Policy) *api.Error) (api.AnswerXML, *api.Error) {
	now := st.queues.Begin()
	defer st.queues.End(now)
	t, err := st.topicOfLocked(f, "TopicArn", now)
	if err != nil {
		return nil, err
	}
	text := t.attributes["Policy"]
	if text == "" {
		text = st.defaultTopicPolicy(t)
	}
	p, ok := policy.Parse(text)
	if !ok {
		return nil, api.InvalidSNSParameter("Policy Error: null")
	}
	if err := change(t, p); err != nil {
		return nil, err
	}
	raw, failed := json.Marshal(p)
	if failed != nil {
		return nil, api.SNSFailure("InternalError", 500, failed.Error())
	}
	t.attributes["Policy"] = string(raw)
	st.logTopicLocked(t, now)
	return nil, nil
}
