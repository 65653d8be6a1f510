# operator
rabbitmqctl set_permissions -p '/' 'tidegate-operator' '^(marketing\.recall\.queue(\..+)?|member\.points\.queue(\..+)?|notify\.push\.queue(\..+)?|order\.close\.queue(\..+)?|report\.generate\.queue(\..+)?|task\..+|amq\.gen-.+|tidegate\.verify\..+)$' '^(marketing\.recall\.queue(\..+)?|member\.points\.queue(\..+)?|notify\.push\.queue(\..+)?|order\.close\.queue(\..+)?|report\.generate\.queue(\..+)?|task\..+|amq\.gen-.+|tidegate\.verify\..+)$' '^(marketing\.recall\.queue(\..+)?|member\.points\.queue(\..+)?|notify\.push\.queue(\..+)?|order\.close\.queue(\..+)?|report\.generate\.queue(\..+)?|task\..+|amq\.gen-.+|tidegate\.verify\..+)$'
# serve
rabbitmqctl set_permissions -p '/' 'tidegate-serve' '^$' '^(task\.exchange|task\.exchange\.high|task\.dead|task\.ingress|task\.delay\.v[1-9]\.([0-6]|due))$' '^(task\.failed\.queue|task\.ingress\.queue|task\.unrouted\.queue|task\.dead\.queue)$'
# service
rabbitmqctl set_permissions -p '/' 'SERVICE' '^$' '^(task\.exchange|task\.exchange\.high|task\.ingress|task\.delay\.30m|task\.delay\.v[1-9]\.([0-6]|due))$' '^$'
# worker of marketing-team
rabbitmqctl set_permissions -p '/' 'marketing-team' '^$' '^(task\.dead|task\.delay\.v[1-9]\.([0-6]|due))$' '^(marketing\.recall\.queue)$'
# worker of member-team
rabbitmqctl set_permissions -p '/' 'member-team' '^$' '^(task\.dead|task\.delay\.v[1-9]\.([0-6]|due))$' '^(member\.points\.queue)$'
# worker of notify-team
rabbitmqctl set_permissions -p '/' 'notify-team' '^$' '^(task\.dead|task\.delay\.v[1-9]\.([0-6]|due))$' '^(notify\.push\.queue)$'
# worker of order-team
rabbitmqctl set_permissions -p '/' 'order-team' '^$' '^(task\.dead|task\.delay\.v[1-9]\.([0-6]|due))$' '^(order\.close\.queue|order\.close\.queue\.high)$'
# worker of report-team
rabbitmqctl set_permissions -p '/' 'report-team' '^$' '^(task\.dead|task\.delay\.v[1-9]\.([0-6]|due))$' '^(report\.generate\.queue)$'
