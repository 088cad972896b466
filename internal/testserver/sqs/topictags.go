//go:build darwin || linux

package sqs

import (
	"encoding/json"
	"maps"
	"slices"
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
func (st *store) resourceLocked(f form, now instant) (*topic, *apiError) {
	t := st.topics[f.Get("ResourceArn")]
	if t == nil || t.known > now {
		return nil, snsFailure("ResourceNotFound", 404, "Resource does not exist")
	}
	return t, nil
}

// tagResource implements TagResource.
func (st *store) tagResource(_ *call, f form) (answerXML, *apiError) {
	now := st.begin()
	defer st.end(now)
	t, err := st.resourceLocked(f, now)
	if err != nil {
		return nil, err
	}
	tags := map[string]string{}
	f.each("Tags.member", func(p string) {
		key := f.Get(p + ".Key")
		if _, twice := tags[key]; twice {
			err = invalidSNS("Duplicated keys are not allowed.")
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
		return nil, snsFailure("TagLimitExceeded", 400, "Could not complete request: tag quota of per resource exceeded")
	}
	t.tags = all
	st.logTopicLocked(t, now)
	return struct{}{}, nil
}

// untagResource implements UntagResource.
func (st *store) untagResource(_ *call, f form) (answerXML, *apiError) {
	now := st.begin()
	defer st.end(now)
	t, err := st.resourceLocked(f, now)
	if err != nil {
		return nil, err
	}
	f.each("TagKeys.member", func(p string) { delete(t.tags, f.Get(p)) })
	st.logTopicLocked(t, now)
	return struct{}{}, nil
}

// listTagsForResource implements ListTagsForResource.
func (st *store) listTagsForResource(_ *call, f form) (answerXML, *apiError) {
	now := st.begin()
	defer st.end(now)
	t, err := st.resourceLocked(f, now)
	if err != nil {
		return nil, err
	}
	result := &tagsResult{}
	for _, k := range sortedKeys(t.tags) {
		result.Tags = append(result.Tags, tagMember{k, t.tags[k]})
	}
	return result, nil
}

// addTopicPermission implements AddPermission of SNS.
func (st *store) addTopicPermission(_ *call, f form) (answerXML, *apiError) {
	return st.changeTopicPolicy(f, func(t *topic, p *policy) *apiError {
		s := statement{Sid: f.Get("Label"), Effect: "Allow", Resource: texts{t.arn}}
		if slices.ContainsFunc(p.Statement, func(other statement) bool { return other.Sid == s.Sid }) {
			return invalidSNS("Statement already exists")
		}
		var principals texts
		f.each("AWSAccountId.member", func(prefix string) { principals = append(principals, "arn:aws:iam::"+f.Get(prefix)+":root") })
		f.each("ActionName.member", func(prefix string) { s.Action = append(s.Action, "SNS:"+f.Get(prefix)) })
		s.Principal, _ = json.Marshal(map[string]texts{"AWS": principals}) // strings
		p.Statement = append(p.Statement, s)
		return nil
	})
}

// removeTopicPermission implements RemovePermission of SNS.
func (st *store) removeTopicPermission(_ *call, f form) (answerXML, *apiError) {
	return st.changeTopicPolicy(f, func(_ *topic, p *policy) *apiError {
		p.Statement = slices.DeleteFunc(p.Statement, func(s statement) bool { return s.Sid == f.Get("Label") })
		return nil
	})
}

func (st *store) changeTopicPolicy(f form, change func(*topic, *policy) *apiError) (answerXML, *apiError) {
	now := st.begin()
	defer st.end(now)
	t, err := st.topicOfLocked(f, "TopicArn", now)
	if err != nil {
		return nil, err
	}
	text := t.attributes["Policy"]
	if text == "" {
		text = st.defaultTopicPolicy(t)
	}
	p, err := parsePolicy(text)
	if err != nil {
		return nil, invalidSNS("Policy Error: null")
	}
	if err := change(t, p); err != nil {
		return nil, err
	}
	raw, failed := json.Marshal(p)
	if failed != nil {
		return nil, snsFailure("InternalError", 500, failed.Error())
	}
	t.attributes["Policy"] = string(raw)
	st.logTopicLocked(t, now)
	return nil, nil
}
