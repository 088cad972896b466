package topics

import "github.com/reprise-go/reprise/internal/testserver/sqs/internal/api"

// Operations are the operations of SNS by name.
var Operations = map[string]Operation{
	"AddPermission":             {nameOfTopic, (*Store).addTopicPermission},
	"CreateTopic":               {func(f api.Form) string { return f.Get("Name") }, (*Store).createTopic},
	"DeleteTopic":               {nameOfTopic, (*Store).deleteTopic},
	"GetSubscriptionAttributes": {nameOfSubscription, (*Store).getSubscriptionAttributes},
	"GetTopicAttributes":        {nameOfTopic, (*Store).getTopicAttributes},
	"ListSubscriptions":         {nameOfTopic, (*Store).listSubscriptions},
	"ListSubscriptionsByTopic":  {nameOfTopic, (*Store).listSubscriptionsByTopic},
	"ListTagsForResource":       {nameOfResource, (*Store).listTagsForResource},
	"ListTopics":                {nameOfTopic, (*Store).listTopics},
	"Publish":                   {nameOfTarget, (*Store).publish},
	"PublishBatch":              {nameOfTopic, (*Store).publishBatch},
	"RemovePermission":          {nameOfTopic, (*Store).removeTopicPermission},
	"SetSubscriptionAttributes": {nameOfSubscription, (*Store).setSubscriptionAttributes},
	"SetTopicAttributes":        {nameOfTopic, (*Store).setTopicAttributes},
	"Subscribe":                 {nameOfTopic, (*Store).subscribe},
	"TagResource":               {nameOfResource, (*Store).tagResource},
	"Unsubscribe":               {nameOfSubscription, (*Store).unsubscribe},
	"UntagResource":             {nameOfResource, (*Store).untagResource},
}

func nameOfTopic(f api.Form) string { return api.TrimARN(f.Get("TopicArn")) }

func nameOfResource(f api.Form) string { return api.TrimARN(f.Get("ResourceArn")) }

func nameOfSubscription(f api.Form) string {
	return api.TrimARN(subscriptionTopic(f.Get("SubscriptionArn")))
}

func nameOfTarget(f api.Form) string { return api.TrimARN(f.Get("TopicArn") + f.Get("TargetArn")) }

// A Operation is an operation of SNS or STS. Its target is the name of the topic.
type Operation struct {
	Target func(api.Form) string
	Run    func(*Store, *api.Call, api.Form) (api.AnswerXML, *api.Error)
}
